"""What is asked of a training. Imports no torch."""

import math
from dataclasses import dataclass
from pathlib import Path

from favor.errors import RequestError
from favor.train.recipe import Recipe

DEFAULT_STUDY = Path("favor-runs")
SAVE_EVERY = 300.0


@dataclass(frozen=True)
class TrainingRequest:
    """One model, how it is to learn, and from what; None stands for what fits the machine.

    `minutes` replaces the recipe's epochs by as many steps as fit, evaluation included. `model` may differ from the
    one in `init` in image size and classes only. `save_every` and `survey_seconds` are in seconds.
    """

    model: str
    recipe: Recipe
    data: str
    out: Path = DEFAULT_STUDY
    resume: bool = False
    init: Path | None = None
    minutes: float | None = None
    device: str | None = None
    threads: int | None = None
    workers: int | None = None
    accumulation: int | None = None
    save_every: float = SAVE_EVERY
    survey_seconds: float = 2.0
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for what, count, least in (
            ("--threads", self.threads, 1),
            ("--workers", self.workers, 0),
            ("--accumulation", self.accumulation, 1),
        ):
            if count is not None and count < least:
                raise RequestError(f"{what}: a whole number from {least} up, not {count}")
        for what, amount in (("--minutes", self.minutes), ("--save-every", self.save_every)):
            if amount is not None and not (amount > 0 and math.isfinite(amount)):
                raise RequestError(f"{what}: a number above zero, not {amount}")
