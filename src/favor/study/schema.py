"""The schema of requests: one list of options behind study files, the command line and Python. Imports no torch.

`favor measure` and `favor train` take their options from these fields, with their types, defaults and help.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
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
from favor.errors import RequestError, Step, path_text, shown, unknown_name
from favor.measurement.job import DEFAULT_BUDGET, LOAD_BUDGET, SCENARIOS
from favor.metrics import metric
from favor.records.schema import EAGER
from favor.runtime.names import ALL_PRECISIONS, RUNTIMES
from favor.trace.attention import ATTENTION
from favor.trace.conditions import IMAGENET_IMAGES, OPTIMIZERS, REFERENCE_BATCH, check_batch_size
from favor.training.request import SAVE_EVERY
from favor.training.trackers import TRACKERS
from favor.units import parse_quantity

STUDY_PHASES = ("count", "inference", "training", "load", "accuracy")

AT_LEAST_ONE = Field(min_length=1)
EXECUTORS = ("local", "slurm", "ray")
SHORTEST = 0.1
"""Seconds: a shorter time must be a typo."""
SHORTEST_LATENCY = 1e-4


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


def one_or_several(value: object) -> object:
    """A single part stands for a list of one."""
    if value is None:
        return ()
    return (value,) if isinstance(value, dict | BaseModel) else value


def _cost(name: str) -> str:
    if metric(name).better == "neither":
        raise ValueError(f"{name} has no better direction, so models cannot be ordered by it")
    return name


Seconds = Annotated[
    float,
    BeforeValidator(_quantity("s", SHORTEST, "20 s or 6 min")),
    PlainSerializer(lambda seconds: f"{seconds!r} s", return_type=str),
]
LatencyLimit = Annotated[
    float,
    BeforeValidator(_quantity("s", SHORTEST_LATENCY, "50 ms")),
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
DataSetName = Annotated[str, _one_of("dataset", SETS)]
Trackers = Annotated[tuple[Annotated[str, _one_of("tracker", TRACKERS)], ...], AfterValidator(_each_once)]


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
        tuple[Annotated[str, _one_of("precision", ALL_PRECISIONS)], ...], AT_LEAST_ONE, AfterValidator(_each_once)
    ] = Field(
        ("fp32",),
        description="fp32, bf16, amp-fp16, amp-bf16, or amp (amp-fp16 on GPUs, amp-bf16 on CPUs); in onnxruntime and "
        "openvino fp32, fp16 or int8; repeatable.",
    )
    batch_size: Annotated[BatchSizes, BeforeValidator(_for_both_phases)] = Field(
        BatchSizes(),
        description="Images per batch (default: best for inference; 8 on CPUs and 64 on GPUs for training).",
    )
    runtimes: Annotated[
        tuple[Annotated[str, _one_of("runtime", RUNTIMES)], ...], AT_LEAST_ONE, AfterValidator(_each_once)
    ] = Field((EAGER,), description="eager, compile (torch.compile), onnxruntime or openvino; repeatable.")
    calibration: Annotated[str, AT_LEAST_ONE] | None = Field(
        None, description="int8: calibration images, as NAME or NAME:PATH such as folder:photos."
    )
    checkpoint: Annotated[str, AT_LEAST_ONE] | None = Field(
        None, description="int8: trained weights (file, run's folder or hub:USER/NAME); measures the change in top-1."
    )
    attention: Annotated[str, _one_of("attention", ATTENTION)] = Field(
        "fused", description="fused, or plain (keeps the attention matrix in memory, as before PyTorch 2.0)."
    )
    optimizer: Annotated[str, _one_of("optimizer", OPTIMIZERS)] = Field(
        "lamb", description="Optimizer of the training step: lamb, adamw, adam or sgd."
    )
    reference_batch: Count = Field(REFERENCE_BATCH, description="Batch size for which hours per epoch are given.")
    epoch_images: Count = Field(IMAGENET_IMAGES, description="Images per epoch; the default is that of ImageNet-1k.")
    energy: bool = Field(True, description="Measure energy if a meter is available.")
    fit_memory: Bytes | None = Field(None, description="Find the largest batch that fits into this size, such as 8GiB.")
    memory_limit: Bytes | None = Field(None, description="Memory limit of each worker, such as 4GiB.")
    time_limit: Seconds | None = Field(None, description="Time limit of each worker, in seconds or with a unit (5min).")
    grid_intensity: Rate | None = Field(None, description="Carbon intensity of your grid in gCO2e/kWh.")
    price_per_hour: Rate | None = Field(None, description="Price of the device per hour.")


class Override(StudyPart):
    """Values of the recipe that some models need, such as a lower learning rate where training diverges."""

    models: Annotated[tuple[str, ...], AT_LEAST_ONE, AfterValidator(_each_once)]
    set: Annotated[Texts, AT_LEAST_ONE]


class Stage(StudyPart):
    """One training: a recipe on a dataset, for the recipe's epochs or those given here, then the fine-tunings."""

    recipe: str = Field(description="Name of a recipe, or path of a .yaml file.")
    data: str | None = Field(None, description="Dataset, as NAME or NAME:PATH (default: the recipe's).")
    epochs: Count | None = Field(None, description="Number of epochs (default: the recipe's).")
    minutes: Minutes | None = Field(
        None, description="Train for this many minutes instead; favor measures the speed and sets the number of steps."
    )
    set: Texts = Field((), description="Override a value of the recipe, as KEY=VALUE; repeatable.")
    init: str | None = Field(None, description="Start from the weights of this checkpoint.")
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = None
    overrides: tuple[Override, ...] = ()
    finetune: Annotated[tuple["Stage", ...], BeforeValidator(one_or_several)] = ()

    @model_validator(mode="after")
    def _ends_one_way(self) -> Self:
        if self.epochs is not None and self.minutes is not None:
            raise ValueError("epochs and minutes both say when training ends; give one of them")
        return self


class Train(Stage):
    """How models are trained: once per model and seed. Without `models`, all models of the study are trained."""

    models: Annotated[tuple[str, ...], AT_LEAST_ONE, AfterValidator(_each_once)] | None = None
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], AT_LEAST_ONE, AfterValidator(_each_once)] = (0,)
    processes: Count = Field(1, description="Processes that share each batch, one per GPU.")
    workers: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Processes that decode images (default: one per core)."
    )
    accumulation: Count | None = Field(None, description="Micro-batches per step (default: as few as fit into memory).")
    save_every: Seconds = Field(SAVE_EVERY, description="Seconds between checkpoints, in addition to one per epoch.")
    log: Trackers = Field(
        (), description="Also log to tensorboard, wandb, mlflow or trackio; repeatable (docs/sharing.md)."
    )


Trainings = Annotated[tuple[Train, ...], BeforeValidator(one_or_several)]


class Load(StudyPart):
    """How the load is tested: the largest rate at which 99 % of the answers come within `p99`."""

    p99: LatencyLimit | None = Field(None, description="Latency limit for 99 % of the answers, such as 50ms.")
    scenario: Annotated[str, _one_of("scenario", SCENARIOS)] = Field(
        "server",
        description="server (random arrivals), single-stream or multi-stream (one query after another), or offline.",
    )
    budget: Seconds = Field(LOAD_BUDGET, description="Seconds per model, for the whole search.")

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if self.scenario == "offline" and self.p99 is not None:
            raise ValueError("offline has no latency limit; remove p99")
        if self.scenario != "offline" and self.p99 is None:
            raise ValueError(f"{self.scenario} needs p99, the latency limit for 99 % of the answers, such as 50ms")
        return self


class Budget(StudyPart):
    """Seconds: for each measurement of a model (several make up a job), and for the whole study."""

    measurement: Seconds = Field(
        default=DEFAULT_BUDGET, description="Seconds per measurement: latency, batch size search, memory ..."
    )
    total: Seconds | None = None


class Report(StudyPart):
    """The end of a study: the dataset and pipeline of the accuracies (null: favor's choice), and the page.

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


# A line break inside a value would start a line of the submission script, which is code.
_WORD = r"^[^\s]+$"
_ONE_WORD = Field(pattern=_WORD)
_EXTRA = re.compile(r"--([a-z][a-z-]*)(=[^\s]+)?\Z")
_SET_BY_FAVOR = {
    *("array", "job-name", "open-mode", "output", "error", "input", "signal", "wrap"),
    *("nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "time", "exclusive", "mem"),
}
_ONLY_SLURM = {"partition", "account", "constraint", "nodes", "time_limit", "exclusive", "extra"}
_ONLY_RAY = {"address"}
SIGNAL_SECONDS = 90
"""Before its time limit, Slurm warns a job, which then saves a checkpoint and requeues itself."""


def is_setting_of(executor: str, name: str) -> bool:
    """Whether an executor has a setting."""
    return name not in {"slurm": _ONLY_RAY, "ray": _ONLY_SLURM}.get(executor, {name})


def _sbatch_options(lines: tuple[str, ...]) -> tuple[str, ...]:
    for line in lines:
        match = _EXTRA.match(line)
        if match is None:
            raise ValueError(f"write options of sbatch, such as --qos=high, not {shown(line)}")
        if match[1] in _SET_BY_FAVOR:
            raise ValueError(f"--{match[1]} is set by favor; remove it")
    return lines


def _leaves_time(seconds: float) -> float:
    if seconds <= SIGNAL_SECONDS:
        raise ValueError(f"must be more than {SIGNAL_SECONDS} s: that long before it, jobs save and requeue themselves")
    return seconds


class ExecutorOptions(StudyPart):
    """Where jobs run, and what each requests from a cluster; docs/clusters.md lists the options of `sbatch`."""

    kind: Annotated[str, _one_of("executor", EXECUTORS)] = "local"
    partition: Annotated[str, _ONE_WORD] | None = None
    account: Annotated[str, _ONE_WORD] | None = None
    constraint: Annotated[str, _ONE_WORD] | None = None
    nodes: Count = 1
    gpus_per_node: Annotated[int, Field(ge=0)] = 0
    cpus_per_task: Count = 1
    memory: Bytes | None = None
    time_limit: Annotated[Seconds, AfterValidator(_leaves_time)] = 4 * 3600.0
    at_once: Count | None = None
    allocations: Count = 4
    exclusive: bool = True
    extra: Annotated[Texts, AfterValidator(_sbatch_options)] = ()
    address: Annotated[str, _ONE_WORD] | None = None

    @model_validator(mode="after")
    def _fits_the_executor(self) -> Self:
        for name in type(self).model_fields:
            if name in self.model_fields_set - {"kind"} and not is_setting_of(self.kind, name):
                raise ValueError(f"{name} is not a setting of the executor {self.kind}; remove it")
        return self

    @property
    def is_cluster(self) -> bool:
        return self.kind != "local"


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
    train: Trainings = ()
    load: Load | None = None
    log: Trackers = Field(
        (), description="Also send results to tensorboard, wandb, mlflow or trackio; repeatable (docs/sharing.md)."
    )
    budget: Budget = Budget()
    report: Report = Report()
    executor: ExecutorOptions = ExecutorOptions()


_PARTS: dict[tuple[str, ...], type[BaseModel]] = {
    (): StudyFile,
    ("train",): Train,
    ("finetune",): Stage,
    ("overrides",): Override,
    ("load",): Load,
    ("budget",): Budget,
    ("batch_size",): BatchSizes,
    ("report",): Report,
    ("executor",): ExecutorOptions,
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
        raise source.error(as_written(content, first["loc"]), _why(first)) from error
    if "accuracy" in study.phases and not study.train:
        raise source.error(
            ("phases",), "the phase accuracy needs training: add `train:` with a recipe, or remove the phase"
        )
    if "load" in study.phases and study.load is None:
        raise source.error(("phases",), "the phase load needs a limit: add `load:` with p99, or remove the phase")
    if study.load is not None and "load" not in study.phases:
        raise source.error(("load",), "no load is tested unless `phases:` lists load; add it there")
    if study.train and "accuracy" not in study.phases:
        raise source.error(("train",), "nothing is trained unless `phases:` lists accuracy; add it there")
    least = study.report.min_accuracy
    if least is not None and 0 < least <= 1:
        raise source.error(("report", "min_accuracy"), f"accuracies are in %; write {100 * least:g}, not {least:g}")
    return study


def as_written(content: object, path: Sequence[Step]) -> tuple[Step, ...]:
    """The path of a part in a file, in which a list of one may be written without the list.

    >>> as_written({"train": {"recipe": 1}}, ("train", 0, "recipe"))
    ('train', 'recipe')
    """
    written: list[Step] = []
    for step in path:
        if isinstance(step, int) and not isinstance(content, tuple):
            continue
        written.append(step)
        if isinstance(content, dict):
            content = content.get(step)
        elif isinstance(content, tuple) and isinstance(step, int) and step < len(content):
            content = content[step]
        else:
            content = None
    return tuple(written)


def executor_in(content: Mapping[str, object], place: str) -> ExecutorOptions:
    """The settings of an executor; the first error names the setting."""
    try:
        return ExecutorOptions.model_validate(dict(content))
    except ValidationError as error:
        first = error.errors()[0]
        named = f" {path_text(first['loc'])}" if first["loc"] else ""
        why = _why({**first, "loc": ("executor", *first["loc"])})
        raise RequestError(f"{place}{named}: {why}") from error


def _why(error: ErrorDetails) -> object:
    """One of pydantic's errors in plain words; for an unknown key, with the closest known one."""
    if error["type"] == "extra_forbidden":
        *inside, key = (step for step in error["loc"] if isinstance(step, str))
        if key == "compile" and not inside:
            return "compile is now a runtime; write `runtimes: [compile]`"
        known = list(_PARTS[tuple(inside[-1:])].model_fields)
        return unknown_name("key", key, known, "known: " + ", ".join(known))
    if error["type"] == "string_pattern_mismatch" and error["ctx"]["pattern"] == _WORD:
        return f"write one word without spaces, not {shown(error['input'])}"
    if error["type"] in _IN_WORDS:
        return _IN_WORDS[error["type"]]
    if error["type"] == "greater_than_equal":
        return f"must be {error['ctx']['ge']:g} or more, not {shown(error['input'])}"
    why = error["msg"].removeprefix("Value error, ")
    is_plain = isinstance(error["input"], str | int | float) and error["type"] != "value_error"
    return f"{why}, not {shown(error['input'])}" if is_plain else why
