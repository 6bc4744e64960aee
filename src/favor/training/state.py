"""The JSON part of checkpoints, validated when it is read. Imports no torch."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from favor.text import require_printable
from favor.training.recipe import Recipe

_STRICT = ConfigDict(frozen=True, extra="forbid")


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
    recipe: Recipe
    minutes: float | None = Field(default=None, description="instead of the recipe's epochs; None in older files")
    top1: float | None

    @property
    def learned_from(self) -> str:
        """The data sets that these weights were trained on, as the next training's records name them."""
        return self.dataset if self.pretraining == "none" else f"{self.pretraining}+{self.dataset}"


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
    """Whether a run that was just evaluated, after so many epochs, has waited long enough for something better.

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
