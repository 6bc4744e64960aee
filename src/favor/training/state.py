"""The JSON part of checkpoints, validated when it is read. Imports no torch."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from favor.records.schema import Scalar
from favor.text import require_printable
from favor.training.recipe import Recipe, pipeline_of, recipe_names

_STRICT = ConfigDict(frozen=True, extra="forbid")


class FirstWeights(BaseModel):
    """What is known about a training run's initial weights; the defaults are random weights.

    `pretraining`, `pipeline` and `seed` name the datasets, pipelines and seeds of all earlier training runs, `img_size`
    is that of the last one. `hash` distinguishes two checkpoints of one pretraining run. Records and files of older
    versions lack some of these.
    """

    model_config = _STRICT

    pretraining: str = "none"
    img_size: int | None = None
    pipeline: str | None = None
    seed: str | None = None
    hash: str | None = None

    @classmethod
    def of(cls, conditions: Mapping[str, Scalar]) -> "FirstWeights":
        """The weights that a record describes."""
        told: dict[str, Any] = {field: conditions[name] for field, name in _CONDITIONS.items() if name in conditions}
        return cls.model_construct(**told | {"pretraining": str(told.get("pretraining", "none"))})

    def conditions(self) -> dict[str, Scalar]:
        """What is known, as conditions of a record."""
        known = {name: getattr(self, field) for field, name in _CONDITIONS.items()}
        return {name: value for name, value in known.items() if value is not None}

    def after(self, dataset: str, img_size: int, pipeline: str | None, seed: int | None) -> "FirstWeights":
        """The weights after a training run that started from these.

        >>> FirstWeights().after("imagenet-21k", 192, "deit3-pretrain@1", 0).after("cars", 224, "cars@1", 0).pipeline
        'deit3-pretrain@1 + cars@1'
        """
        before = () if self.pretraining == "none" else (self.pretraining,)
        return FirstWeights(
            pretraining="+".join([*before, dataset]),
            img_size=img_size,
            pipeline=" + ".join(filter(None, (self.pipeline, pipeline))) or None,
            seed="+".join(filter(None, (self.seed, None if seed is None else str(seed)))) or None,
        )

    def agrees_with(self, other: "FirstWeights") -> bool:
        """Whether both can be the same weights: a fact that only one of them states does not count.

        Datasets may have the sizes of subsets, which only opened datasets know.
        """
        if (without_sizes(self.pretraining), self.img_size) != (without_sizes(other.pretraining), other.img_size):
            return False
        told = ((getattr(self, name), getattr(other, name)) for name in ("pipeline", "seed", "hash"))
        return all(one == another for one, another in told if None not in (one, another))


_CONDITIONS = {
    "pretraining": "pretraining",
    "img_size": "pretraining_img_size",
    "pipeline": "pretraining_pipeline",
    "seed": "pretraining_seed",
    "hash": "initial_weights",
}


def without_sizes(datasets: str) -> str:
    """The datasets without the sizes in brackets that follow the names of subsets.

    >>> without_sizes("digits[9+3]+cars")
    'digits+cars'
    """
    return re.sub(r"\[[^\]]*\]", "", datasets)


class Trained(BaseModel):
    """All that using a model file takes: the model to build, the preprocessing, and the classes of the outputs."""

    model_config = _STRICT

    favor: str
    run: str
    step: int
    epochs: float
    model: str
    img_size: int = Field(ge=1, le=4096)
    in_chans: int = Field(ge=1, le=1024)
    classes: tuple[Annotated[str, AfterValidator(require_printable)], ...] = Field(min_length=1)
    dataset: str
    pretraining: str
    pretraining_pipeline: str | None = None
    pretraining_seed: str | None = None
    recipe: Recipe
    pipeline: str | None = Field(default=None, description="None in older files")
    minutes: float | None = Field(default=None, description="instead of the recipe's epochs; None in older files")
    top1: float | None

    @property
    def pipeline_name(self) -> str:
        """The pipeline; of an older file that of its recipe."""
        return self.pipeline or pipeline_of(self.recipe, self.minutes)

    def as_first_weights(self) -> FirstWeights:
        """These weights, as described in the records of a training run that starts from them."""
        before = FirstWeights(
            pretraining=self.pretraining, pipeline=self.pretraining_pipeline, seed=self.pretraining_seed
        )
        is_older = self.pipeline is None
        if is_older and (self.pretraining != "none" or self.recipe.name not in recipe_names()):
            # It does not tell what came before it, or what the user's recipe file said.
            return before.after(self.dataset, self.img_size, None, None)
        return before.after(self.dataset, self.img_size, self.pipeline_name, self.recipe.seed)


class Survey(BaseModel):
    """What a step costs, measured before the training, in seconds and bytes; None where it is unknown."""

    model_config = _STRICT

    accumulation: int
    step_time: float
    step_time_low: float | None
    step_time_high: float | None
    end_to_end: float
    end_to_end_low: float | None
    end_to_end_high: float | None
    idle: float
    evaluation_time: float
    memory: int = Field(description="the largest of the processes")
    memory_total: int | None = Field(default=None, description="the sum over the processes")
    memory_method: str


class Sums(BaseModel):
    """The running sums of the current epoch."""

    model_config = _STRICT

    loss: float = 0.0
    images: int = 0
    seconds: float = 0.0
    seconds_total: float | None = Field(default=None, description="over all processes; None in older checkpoints")
    waited: float = 0.0
    joules: float | None = 0.0

    def device_seconds(self, processes: int) -> float:
        """The seconds summed over the processes; a resumed run may have another number of them."""
        return self.seconds * processes if self.seconds_total is None else self.seconds_total


class Best(BaseModel):
    """The best evaluation so far: that with the highest top-1, and of equal ones that with the lowest loss."""

    model_config = _STRICT

    top1: float
    epochs: float
    loss: float | None = Field(default=None, description="None in checkpoints of older versions")

    def is_worse_than(self, top1: float, loss: float) -> bool:
        return top1 > self.top1 or (top1 == self.top1 and self.loss is not None and loss < self.loss)


class Readings(BaseModel):
    """The three clocks, in seconds."""

    model_config = _STRICT

    training: float = 0.0
    evaluation: float = 0.0
    program: float = 0.0
    training_total: float | None = Field(default=None, description="over all processes; None in older checkpoints")

    def device_seconds(self, processes: int) -> float:
        """The training clock summed over the processes; a resumed run may have another number of them."""
        return self.training * processes if self.training_total is None else self.training_total


class RunState(BaseModel):
    """A run after some step: its request, its survey, and its progress."""

    model_config = _STRICT

    run: str
    asked: dict[str, Any]
    steps: int
    survey: Survey
    step: int = 0
    evaluated: int = Field(default=0, description="the step of the last evaluation")
    sums: Sums = Sums()
    best: Best | None = None
    last_top1: float | None = None
    clocks: Readings = Readings()
    joules: float | None = Field(default=None, description="the energy of the epochs before the current one")
    optimizer: list[dict[str, Any]] = []
    scaler: dict[str, Any] = {}

    def has_ended(self, patience: int | None, epochs: float) -> bool:
        """Whether the last step was evaluated, after so many epochs, or the last improvement is too long ago."""
        return self.evaluated == self.steps or (self.evaluated == self.step and is_over(self.best, patience, epochs))


def is_over(best: Best | None, patience: int | None, epochs: float) -> bool:
    """Whether a run has gone long enough without a better evaluation, so that it stops early.

    >>> is_over(Best(top1=80.0, epochs=3), patience=5, epochs=8)
    True
    """
    return patience is not None and best is not None and epochs - best.epochs >= patience


def some(classes: tuple[str, ...]) -> str:
    """The number of classes, and the first three.

    >>> some(("ant", "bee", "cat", "dog"))
    '4 classes (ant, bee, cat, ...)'
    """
    return f"{len(classes)} classes ({', '.join(classes[:3])}{', ...' if len(classes) > 3 else ''})"
