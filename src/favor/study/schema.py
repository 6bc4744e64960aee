"""The schema of requests: one list of options behind study files, the command line and Python. Imports no torch.

`favor measure` and `favor train` take their options from these fields, with their types, defaults and help.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Literal, Protocol, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from favor.data.names import SETS
from favor.errors import RequestError, Step, shown, unknown_name
from favor.machine.precision import PRECISIONS
from favor.measurement.job import DEFAULT_BUDGET
from favor.metrics import metric
from favor.trace.attention import ATTENTION
from favor.trace.conditions import IMAGENET_IMAGES, OPTIMIZERS, REFERENCE_BATCH, check_batch_size
from favor.training.request import SAVE_EVERY
from favor.units import parse_quantity

StudyPhase = Literal["count", "inference", "training", "accuracy"]
STUDY_PHASES: tuple[StudyPhase, ...] = ("count", "inference", "training", "accuracy")

AT_LEAST_ONE = Field(min_length=1)
SHORTEST = 0.1
"""Seconds: a shorter time must be a typo."""


def _one_of(what: str, known: Collection[str]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in known:
            raise unknown_name(what, value, known, "choose from " + ", ".join(known))
        return value

    return AfterValidator(check)


def _each_once(values: tuple[object, ...]) -> tuple[object, ...]:
    seen = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{shown(value)} is listed twice; list it once")
        seen.add(value)
    return values


def _quantity(unit: str, least: float, example: str) -> Callable[[object], object]:
    """Convert strings such as "6 min" to numbers in a unit; a number without a unit is refused."""

    def read(value: object) -> object:
        if type(value) in (int, float):
            raise ValueError(f"{shown(value)} has no unit; write it with one, such as {example}")
        if not isinstance(value, str):
            return value
        try:
            number = parse_quantity(value, unit)
        except RequestError as error:
            raise ValueError(str(error).removeprefix("value: ")) from error
        if number < least:
            raise ValueError(f"{value} is too {'short' if unit == 's' else 'small'}; write {least:g} {unit} or more")
        return int(number) if unit == "B" else number

    return read


def _batch(value: object) -> object:
    if value == "best":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        check_batch_size(value)
        return value
    raise ValueError(f"write best or a whole number of 1 or more, not {shown(value)}")


def _for_both_phases(value: object) -> object:
    return {"inference": value, "training": value} if isinstance(value, str | int) else value


def _img_sizes(value: object) -> object:
    if value == "own":
        return value
    if not isinstance(value, tuple) or not value or not all(type(side) is int and side >= 1 for side in value):
        raise ValueError(f"write own (each model's), or a list of sides in px such as [224, 384], not {shown(value)}")
    return _each_once(value)


def _cost(name: str) -> str:
    if metric(name).better == "neither":
        raise ValueError(f"{name} has no better direction, so models cannot be ordered by it")
    return name


Seconds = Annotated[
    float,
    BeforeValidator(_quantity("s", SHORTEST, "20 s or 6 min")),
    PlainSerializer(lambda seconds: f"{seconds!r} s", return_type=str),
]
Bytes = Annotated[
    int,
    BeforeValidator(_quantity("B", 1, "8GiB or 800MB")),
    PlainSerializer(lambda size: f"{size} B", return_type=str),
]
Rate = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Minutes = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Texts = Annotated[tuple[Annotated[str, AT_LEAST_ONE], ...], AfterValidator(_each_once)]
Batch = Annotated[int | Literal["best"], PlainValidator(_batch)]
ImgSizes = Annotated[tuple[int, ...] | Literal["own"], PlainValidator(_img_sizes)]
DataSetName = Annotated[str, _one_of("data set", SETS)]


class Source(Protocol):
    """Where a request was written, a file or a command line, so that errors can point at it."""

    place: str

    def mapping(self, what: str) -> dict[str, object]: ...

    def line(self, path: Sequence[Step]) -> int: ...

    def error(self, path: Sequence[Step], why: object) -> RequestError: ...


class StudyPart(BaseModel):
    """A part of a study file: unknown keys and wrong types are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class BatchSizes(StudyPart):
    """Images per batch; null means the best (searched) for inference and the device's default for training."""

    inference: Batch | None = None
    training: Batch | None = None


class MeasureOptions(StudyPart):
    """How models are measured. `description` is the help of the command line's option."""

    num_classes: Count = Field(1000, description="Number of classes.")
    precisions: Annotated[
        tuple[Annotated[str, _one_of("precision", PRECISIONS)], ...], AT_LEAST_ONE, AfterValidator(_each_once)
    ] = Field(
        ("fp32",),
        description="fp32, bf16, amp-fp16, amp-bf16, or amp (amp-fp16 on GPUs, amp-bf16 on CPUs); repeatable.",
    )
    batch_size: Annotated[BatchSizes, BeforeValidator(_for_both_phases)] = Field(
        BatchSizes(),
        description="Images per batch (default: best for inference; 8 on CPUs and 64 on GPUs for training).",
    )
    compile: bool = Field(False, description="Compile the model with torch.compile.")
    attention: Annotated[str, _one_of("attention", ATTENTION)] = Field(
        "fused", description="fused, or plain: the matrix of its weights in memory, as before PyTorch 2.0."
    )
    optimizer: Annotated[str, _one_of("optimizer", OPTIMIZERS)] = Field(
        "lamb", description="Optimizer of the training step: lamb, adamw, adam or sgd."
    )
    reference_batch: Count = Field(REFERENCE_BATCH, description="Batch size for the hours per epoch.")
    epoch_images: Count = Field(IMAGENET_IMAGES, description="Images per epoch; the default is ImageNet-1k.")
    energy: bool = Field(True, description="Measure energy if a meter is available.")
    fit_memory: Bytes | None = Field(None, description="Find the largest batch in this much memory, such as 8GiB.")
    memory_limit: Bytes | None = Field(None, description="Memory limit of each worker, such as 4GiB.")
    time_limit: Seconds | None = Field(None, description="Time limit of each worker, in seconds or such as 5min.")
    grid_intensity: Rate | None = Field(None, description="Carbon intensity of your grid in gCO2e/kWh.")
    price_per_hour: Rate | None = Field(None, description="Price of the device per hour.")


class Stage(StudyPart):
    """One training: a recipe on a data set, for the recipe's epochs or those given here."""

    recipe: str = Field(description="Name of a recipe, or path of a .yaml file.")
    data: str | None = Field(None, description="Data set, as NAME or NAME:PATH (default: the recipe's).")
    epochs: Count | None = Field(None, description="Number of epochs (default: the recipe's).")
    minutes: Minutes | None = Field(
        None, description="Train for this many minutes instead; a short survey of the speed sets the number of steps."
    )
    set: Texts = Field((), description="Override a value of the recipe, as KEY=VALUE; repeatable.")
    init: str | None = Field(None, description="Start from the weights of this checkpoint.")

    @model_validator(mode="after")
    def _ends_one_way(self) -> Self:
        if self.epochs is not None and self.minutes is not None:
            raise ValueError("epochs and minutes both say when training ends; give one of them")
        return self


class Train(Stage):
    """How models are trained: once per model and seed, then fine-tuned if `finetune` is given."""

    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], AT_LEAST_ONE, AfterValidator(_each_once)] = (0,)
    finetune: Stage | None = None
    workers: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Processes that decode images (default: one per core)."
    )
    accumulation: Count | None = Field(None, description="Micro-batches per step (default: as few as fit into memory).")
    save_every: Seconds = Field(SAVE_EVERY, description="Seconds between checkpoints, in addition to one per epoch.")
    tensorboard: bool = Field(False, description="Write TensorBoard files beside the checkpoints.")


class Budget(StudyPart):
    """Seconds: for each measurement of a model (several make up a job), and for the whole study."""

    measurement: Seconds = Field(
        default=DEFAULT_BUDGET, description="Seconds per measurement: latency, batch size search, memory ..."
    )
    total: Seconds | None = None


class Report(StudyPart):
    """The end of a study: the data set and pipeline of the accuracies (null: favor's choice), and the page.

    A model favored for speed or memory must reach `min_accuracy`. `indicators` are the costs whose rankings of the
    models are compared.
    """

    dataset: DataSetName = "imagenet-1k"
    pipeline: str | None = None
    min_accuracy: Annotated[float, Field(ge=0.0, le=100.0)] | None = None
    indicators: Annotated[
        tuple[Annotated[str, AfterValidator(_cost)], ...], Field(min_length=2), AfterValidator(_each_once)
    ] = ("params", "macs", "throughput", "latency_p50", "inference_memory")
    page: bool = True


class StudyFile(MeasureOptions):
    """The content of a study file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    doc: str = ""
    models: Annotated[tuple[str, ...], AT_LEAST_ONE, AfterValidator(_each_once)]
    plugins: Texts = ()
    img_sizes: ImgSizes = Field("own", description="Image side in pixels (default: the model's own); repeatable.")
    phases: Annotated[
        tuple[Annotated[str, _one_of("phase", STUDY_PHASES)], ...], AT_LEAST_ONE, AfterValidator(_each_once)
    ] = ("count", "inference")
    device: str | None = Field(None, description="cpu, cuda, cuda:N or mps (default: the fastest).")
    threads: Count | None = Field(None, description="CPU threads (default: the physical cores).")
    train: Train | None = None
    budget: Budget = Budget()
    report: Report = Report()


_PARTS: dict[tuple[str, ...], type[BaseModel]] = {
    (): StudyFile,
    ("train",): Train,
    ("train", "finetune"): Stage,
    ("budget",): Budget,
    ("batch_size",): BatchSizes,
    ("report",): Report,
}


_IN_WORDS = {
    "missing": "is required",
    "tuple_type": "write a list, such as [a, b]",
    "string_type": "write a string, in quotes if it looks like a number",
    "int_type": "write a whole number",
    "float_type": "write a number",
    "bool_type": "write true or false",
    "model_type": "write `key: value` lines below it",
    "too_short": "needs more entries",
    "string_too_short": "is empty",
    "string_pattern_mismatch": "use only letters, digits, dots, dashes and underscores, since it names a folder",
}


def study_in(source: Source, default_name: str) -> StudyFile:
    """The study in a source; the first error is reported with its line, or its option."""
    content = source.mapping("a study")
    try:
        study = StudyFile.model_validate({"name": default_name, **content})
    except ValidationError as error:
        # A misspelled key is also a missing one; report the misspelling.
        first = min(error.errors(), key=lambda detail: (source.line(detail["loc"]), detail["type"] == "missing"))
        raise source.error(first["loc"], _why(first)) from error
    if ("accuracy" in study.phases) and study.train is None:
        raise source.error(
            ("phases",), "the phase accuracy needs training: add `train:` with a recipe, or remove the phase"
        )
    if study.train is not None and "accuracy" not in study.phases:
        raise source.error(("train",), "nothing is trained unless `phases:` lists accuracy; add it there")
    return study


def _why(found: ErrorDetails) -> object:
    """One of pydantic's errors in plain words; for an unknown key, with the closest known one."""
    if found["type"] == "extra_forbidden":
        *inside, key = (str(step) for step in found["loc"])
        known = list(_PARTS[tuple(inside)].model_fields)
        return unknown_name("key", key, known, "known: " + ", ".join(known))
    if found["type"] in _IN_WORDS:
        return _IN_WORDS[found["type"]]
    if found["type"] == "greater_than_equal":
        return f"must be {found['ctx']['ge']:g} or more, not {shown(found['input'])}"
    why = found["msg"].removeprefix("Value error, ")
    is_plain = isinstance(found["input"], str | int | float) and found["type"] != "value_error"
    return f"{why}, not {shown(found['input'])}" if is_plain else why
