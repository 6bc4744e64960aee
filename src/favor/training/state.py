"""The JSON part of checkpoints, validated when it is read. Imports no torch."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

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
    classes: tuple[str, ...] = Field(min_length=1)
    dataset: str
    pretraining: str
    recipe: Recipe
    top1: float | None

    @property
    def learned_from(self) -> str:
        """The data sets that these weights were trained on, as the next training's records name them."""
        return self.dataset if self.pretraining == "none" else f"{self.pretraining}+{self.dataset}"


class Survey(BaseModel):
    """What a step costs, measured before the training, in seconds and bytes; `memory` is None if unknown."""

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
    memory: int
    memory_method: str


class Sums(BaseModel):
    """The running sums of the current epoch."""

    model_config = _STRICT

    loss: float = 0.0
    images: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    joules: float | None = 0.0


class Best(BaseModel):
    """The best evaluation so far."""

    model_config = _STRICT

    top1: float
    epochs: float


class Readings(BaseModel):
    """The three clocks, in seconds."""

    model_config = _STRICT

    training: float = 0.0
    evaluation: float = 0.0
    program: float = 0.0


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
    optimizer: list[dict[str, Any]] = []
    scaler: dict[str, Any] = {}


def some(classes: tuple[str, ...]) -> str:
    """The number of classes, and the first three.

    >>> some(("ant", "bee", "cat", "dog"))
    '4 classes (ant, bee, cat, ...)'
    """
    return f"{len(classes)} classes ({', '.join(classes[:3])}{', ...' if len(classes) > 3 else ''})"
