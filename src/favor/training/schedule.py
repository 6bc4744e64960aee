"""The learning rate of every optimizer step."""

import math
from dataclasses import dataclass
from typing import Literal

from favor.errors import RequestError
from favor.training.recipe import Recipe

Shape = Literal["cosine", "constant"]


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up to the peak, then a cosine to the minimum, or the peak kept.

    The peak is reached at step `warmup_steps`, the minimum at the last step, both exactly.

    >>> schedule = Schedule(peak=3e-3, minimum=1e-5, warmup_from=1e-6, warmup_steps=5, steps=90)
    >>> schedule.at(0), schedule.at(5), schedule.at(89)
    (1e-06, 0.003, 1e-05)
    """

    peak: float
    minimum: float
    warmup_from: float
    warmup_steps: int
    steps: int
    shape: Shape = "cosine"

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 <= self.warmup_steps < self.steps:
            raise RequestError(
                f"a schedule of {self.steps} steps is too short for {self.warmup_steps} warm-up steps and the peak; "
                "train longer or set warmup_epochs lower"
            )
        if self.shape == "cosine" and self.warmup_steps == self.steps - 1 and self.peak != self.minimum:
            raise RequestError(
                f"a schedule of {self.steps} steps with {self.warmup_steps} of warm-up has no step left for the "
                "minimum; train longer or set schedule=constant"
            )

    def at(self, step: int) -> float:
        """The learning rate of this step, the first being 0."""
        if not 0 <= step < self.steps:
            raise RequestError(f"step {step} of a schedule of {self.steps} steps, which count from 0")
        if step < self.warmup_steps:
            done = step / self.warmup_steps
            return self.warmup_from * (1.0 - done) + self.peak * done
        if self.shape == "constant":
            return self.peak
        done = (step - self.warmup_steps) / (self.steps - 1 - self.warmup_steps) if step > self.warmup_steps else 0.0
        weight = 0.5 * (1.0 + math.cos(math.pi * done))
        # Weights of 1 and 0 give the peak and the minimum without rounding, which minimum + (peak - minimum) does not.
        return self.peak * weight + self.minimum * (1.0 - weight)


def schedule_of(recipe: Recipe, steps_per_epoch: int, steps: int | None = None) -> Schedule:
    """The schedule that a recipe names, for epochs of this many optimizer steps.

    With `steps`, the whole schedule is scaled to that many steps, warm-up included.
    """
    planned = recipe.epochs * steps_per_epoch
    steps = planned if steps is None else steps
    return Schedule(
        peak=recipe.lr,
        minimum=recipe.min_lr,
        warmup_from=recipe.warmup_lr,
        warmup_steps=round(recipe.warmup_epochs * steps_per_epoch * steps / planned),
        steps=steps,
        shape=recipe.schedule,
    )
