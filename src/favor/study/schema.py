"""What can be asked for: the one list of options behind study files, the command line and Python. Imports no torch.

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
"""Seconds: less than this is a typing error."""


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
            raise ValueError(f"{shown(value)} is there twice; name it once")
        seen.add(value)
    return values


def _quantity(unit: str, least: float, example: str) -> Callable[[object], object]:
    """Texts such as "6 min" to numbers in a unit; a number that stands alone is refused."""

    def read(value: object) -> object:
        if type(value) in (int, float):
            raise ValueError(f"{shown(value)} of what? Write it with its unit, such as {example}")
        if not isinstance(value, str):
            return value
        try:
            number = parse_quantity(value, unit)
        except RequestError as error:
            raise ValueError(str(error).removeprefix("value: ")) from error
        if number < least:
            raise ValueError(f"{value} is too {'short' if unit == 's' else 'little'}; write {least:g} {unit} or more")
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
    """Where a request was written, a file or a command line, so that an error can point at the part that is wrong."""

    place: str

    def mapping(self, what: str) -> dict[str, object]: ...

    def line(self, path: Sequence[Step]) -> int: ...

    def error(self, path: Sequence[Step], why: object) -> RequestError: ...


class StudyPart(BaseModel):
    """What study files are made of: every key is known, and a value has the type that it should have."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class BatchSizes(StudyPart):
    """Images at once; null is the best, searched, for inference, and the device's usual for a training step."""

    inference: Batch | None = None
    training: Batch | None = None


class MeasureOptions(StudyPart):
    """How models are measured. `description` is the help of the command line's option."""

    num_classes: Count = Field(1000, description="Classes of the head.")
    precisions: Annotated[
        tuple[Annotated[str, _one_of("precision", PRECISIONS)], ...], AT_LEAST_ONE, AfterValidator(_each_once)
    ] = Field(("fp32",), description="fp32, bf16, or amp (automatic mixed precision); repeatable.")
    batch_size: Annotated[BatchSizes, BeforeValidator(_for_both_phases)] = Field(
        BatchSizes(),
        description="Images at once, or best. Unless given: best for inference; 8 (CPU) or 64 for training.",
    )
    compile: bool = Field(False, description="Compile the model with torch.compile.")
    attention: Annotated[str, _one_of("attention", ATTENTION)] = Field(
        "fused", description="fused, or plain: the matrix of its weights in memory, as before PyTorch 2.0."
    )
    optimizer: Annotated[str, _one_of("optimizer", OPTIMIZERS)] = Field(
        "lamb", description="Of the training step: lamb, adamw, adam or sgd."
    )
    reference_batch: Count = Field(REFERENCE_BATCH, description="Batch that the hours per epoch are for.")
    epoch_images: Count = Field(IMAGENET_IMAGES, description="Images of an epoch; ImageNet-1k's unless given.")
    energy: bool = Field(True, description="Measure energy where a meter is found.")
    fit_memory: Bytes | None = Field(None, description="Find the largest batch that fits, such as 8GiB.")
    memory_limit: Bytes | None = Field(None, description="For a model's process, such as 4GiB.")
    time_limit: Seconds | None = Field(None, description="For a model's process, in seconds unless a unit is given.")
    grid_intensity: Rate | None = Field(None, description="Your grid's gCO2e per kWh.")
    price_per_hour: Rate | None = Field(None, description="What an hour of the device costs.")


class Stage(StudyPart):
    """One training: a recipe on a data set, for the recipe's epochs or what is given here."""

    recipe: str = Field(description="A recipe's name, or the path of a .yaml file.")
    data: str | None = Field(None, description="The data set, as NAME or NAME:PATH; the recipe's own unless given.")
    epochs: Count | None = Field(None, description="How long to train; the recipe's epochs unless given.")
    minutes: Minutes | None = Field(
        None, description="Train as many steps as fit into this time, by a survey of the speed, not by epochs."
    )
    set: Texts = Field((), description="Another value for a key of the recipe, as KEY=VALUE; repeatable.")
    init: str | None = Field(None, description="Start from the weights of this checkpoint, not from fresh ones.")

    @model_validator(mode="after")
    def _ends_one_way(self) -> Self:
        if self.epochs is not None and self.minutes is not None:
            raise ValueError("epochs and minutes both say when training ends; give one of them")
        return self


class Train(Stage):
    """How accuracies are made: one training for each model and seed, and a second one from its weights if wanted."""

    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], AT_LEAST_ONE, AfterValidator(_each_once)] = (0,)
    finetune: Stage | None = None
    workers: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Processes that decode images; one a core unless given."
    )
    accumulation: Count | None = Field(
        None, description="Micro-batches of a step; as few as fit into memory unless given."
    )
    save_every: Seconds = Field(SAVE_EVERY, description="Seconds between checkpoints, besides each epoch's end.")
    tensorboard: bool = Field(False, description="Write TensorBoard files beside the checkpoints.")


class Budget(StudyPart):
    """Seconds: for each measurement of a model (several make up a job), and for the whole study."""

    measurement: Seconds = Field(
        default=DEFAULT_BUDGET, description="Seconds for each measurement of a model: latency, search, memory ..."
    )
    total: Seconds | None = None


class Report(StudyPart):
    """What the end says: the accuracies' data set and pipeline (null: favor's choice), and the page.

    `min_accuracy` is asked of whoever is favored for speed or for memory; `indicators` are the costs whose orders of
    the models are held against each other.
    """

    dataset: DataSetName = "imagenet-1k"
    pipeline: str | None = None
    min_accuracy: Annotated[float, Field(ge=0.0, le=100.0)] | None = None
    indicators: Annotated[
        tuple[Annotated[str, AfterValidator(_cost)], ...], Field(min_length=2), AfterValidator(_each_once)
    ] = ("params", "macs", "throughput", "latency_p50", "inference_memory")
    page: bool = True


class StudyFile(MeasureOptions):
    """What a study file holds."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    doc: str = ""
    models: Annotated[tuple[str, ...], AT_LEAST_ONE, AfterValidator(_each_once)]
    plugins: Texts = ()
    img_sizes: ImgSizes = Field("own", description="Image side in px; each model's own unless given; repeatable.")
    phases: Annotated[
        tuple[Annotated[str, _one_of("phase", STUDY_PHASES)], ...], AT_LEAST_ONE, AfterValidator(_each_once)
    ] = ("count", "inference")
    device: str | None = Field(None, description="cpu, cuda, cuda:N or mps; the fastest unless given.")
    threads: Count | None = Field(None, description="On the CPU; the physical cores unless given.")
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
    "missing": "is missing; it has to be given",
    "tuple_type": "write a list, such as [a, b]",
    "string_type": "write a text (in quotes if it looks like a number)",
    "int_type": "write a whole number",
    "float_type": "write a number",
    "bool_type": "write true or false",
    "model_type": "write a list of `key: value` below it",
    "too_short": "too few are named",
    "string_too_short": "is empty",
    "string_pattern_mismatch": "letters, digits, dots, dashes and underscores only: a folder is named so",
}


def study_in(source: Source, default_name: str) -> StudyFile:
    """The study in a file's content; the first thing that is wrong is told with its line."""
    content = source.mapping("a study")
    try:
        study = StudyFile.model_validate({"name": default_name, **content})
    except ValidationError as error:
        # A key that is misspelt is missing as well, and the misspelling is what helps.
        first = min(error.errors(), key=lambda found: (source.line(found["loc"]), found["type"] == "missing"))
        raise source.error(first["loc"], _why(first)) from error
    if ("accuracy" in study.phases) and study.train is None:
        raise source.error(("phases",), "accuracy is made by training: add `train:` with a recipe, or leave it out")
    if study.train is not None and "accuracy" not in study.phases:
        raise source.error(("train",), "nothing is trained unless `phases:` names accuracy; add it there")
    return study


def _why(found: ErrorDetails) -> object:
    """The reason of one of pydantic's errors, for people; a key that is not known with what is close to it."""
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
