"""A study file: what is to be measured and trained, under which conditions, in how much time. Imports no torch."""

from collections.abc import Callable, Collection
from typing import Annotated, Literal, Self

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
from favor.errors import shown, unknown_name
from favor.machine.precision import PRECISIONS
from favor.measure.request import DEFAULT_BUDGET
from favor.metrics import metric
from favor.units import parse_quantity
from favor.yaml_file import YamlFile

StudyPhase = Literal["count", "inference", "training", "accuracy"]
STUDY_PHASES: tuple[StudyPhase, ...] = ("count", "inference", "training", "accuracy")

AT_LEAST_ONE = Field(min_length=1)
LEAST_BUDGET = 1.0
"""Seconds: what a timing needs at least to tell anything."""


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


def _quantity(unit: str, least: float, what: str) -> Callable[[object], object]:
    """Texts such as "6 min" to numbers in a unit; a number that stands alone is left to the type to refuse."""

    def read(value: object) -> object:
        if type(value) in (int, float):
            raise ValueError(f"{shown(value)} of what? Write it with its unit, such as {what}")
        if not isinstance(value, str):
            return value
        number = parse_quantity(value, unit)
        if number < least:
            raise ValueError(f"{value} is too short; the least that works is {least:g} {unit}")
        return number

    return read


def _batch(value: object) -> object:
    if value != "best" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"write best or a whole number of 1 or more, not {shown(value)}")
    return value


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
    BeforeValidator(_quantity("s", LEAST_BUDGET, "20 s or 6 min")),
    PlainSerializer(lambda seconds: f"{seconds!r} s", return_type=str),
]
Minutes = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Texts = Annotated[tuple[Annotated[str, AT_LEAST_ONE], ...], AfterValidator(_each_once)]
Batch = Annotated[int | Literal["best"], PlainValidator(_batch)]
ImgSizes = Annotated[tuple[int, ...] | Literal["own"], PlainValidator(_img_sizes)]
DataSetName = Annotated[str, _one_of("data set", SETS)]


class StudyPart(BaseModel):
    """What study files are made of: every key is known, and a value has the type that it should have."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Stage(StudyPart):
    """One training: a recipe on a data set (the recipe's own unless given), for its epochs or what is given here."""

    recipe: str
    data: str | None = None
    epochs: Count | None = None
    minutes: Minutes | None = None

    @model_validator(mode="after")
    def _ends_one_way(self) -> Self:
        if self.epochs is not None and self.minutes is not None:
            raise ValueError("epochs and minutes both say when training ends; give one of them")
        return self


class Train(Stage):
    """How accuracies are made: one training for each model and seed, and a second one from its weights if wanted."""

    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], AT_LEAST_ONE, AfterValidator(_each_once)] = (0,)
    finetune: Stage | None = None


class Budget(StudyPart):
    """Seconds: for each measurement of a model (several make up a job), and for the whole study."""

    measurement: Seconds = DEFAULT_BUDGET
    total: Seconds | None = None


class BatchSizes(StudyPart):
    """Images at once; null is the best, searched, for inference, and the device's usual for a training step."""

    inference: Batch | None = None
    training: Batch | None = None


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


class StudyFile(StudyPart):
    """What a study file holds."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    doc: str = ""
    models: Annotated[Texts, AT_LEAST_ONE]
    plugins: Texts = ()
    img_sizes: ImgSizes = "own"
    num_classes: Count = 1000
    phases: Annotated[
        tuple[Annotated[str, _one_of("phase", STUDY_PHASES)], ...], AT_LEAST_ONE, AfterValidator(_each_once)
    ] = ("count", "inference")
    precisions: Annotated[
        tuple[Annotated[str, _one_of("precision", PRECISIONS)], ...], AT_LEAST_ONE, AfterValidator(_each_once)
    ] = ("fp32",)
    device: str | None = None
    threads: Count | None = None
    batch_size: BatchSizes = BatchSizes()
    energy: bool = True
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


def study_in(source: YamlFile, default_name: str) -> StudyFile:
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
    why = found["msg"].removeprefix("Value error, ")
    is_plain = isinstance(found["input"], str | int | float) and found["type"] != "value_error"
    return f"{why}, not {shown(found['input'])}" if is_plain else why
