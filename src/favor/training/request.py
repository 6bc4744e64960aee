"""The request for a training run. Imports no torch."""

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path

from favor.errors import RequestError
from favor.trace.attention import check_attention
from favor.training.recipe import Recipe

DEFAULT_STUDY = Path("runs/train")
SAVE_EVERY = 300.0


@dataclass(frozen=True)
class TrainingRequest:
    """Train one model with a recipe on a dataset; None means a value that fits the machine.

    `pipeline` names the training in its records (default: the recipe and its changed keys); `overrides` are the values
    that a study gives to this model alone. `name` distinguishes two runs of one recipe with other values: it is part of
    the run's folder. `minutes` replaces the recipe's epochs by as many steps as fit, evaluation included. `model` may
    differ from the one in `init` in image size and classes only; `init_hash` is that of the file when it was asked for.
    `log` names trackers. `save_every` and `survey_seconds` are in seconds. `grid_intensity` (gCO2e/kWh) and
    `price_per_hour` (of a device) are for the carbon and money of the whole training. On a cluster `writer` names the
    job's own file of records, and the scheduler, not a lock, keeps two jobs from the same run.
    """

    model: str
    recipe: Recipe
    data: str
    study: Path = DEFAULT_STUDY
    name: str | None = None
    pipeline: str | None = None
    overrides: str | None = None
    resume: bool = False
    init: Path | None = None
    init_hash: str | None = None
    minutes: float | None = None
    device: str | None = None
    threads: int | None = None
    processes: int = 1
    workers: int | None = None
    accumulation: int | None = None
    save_every: float = SAVE_EVERY
    survey_seconds: float = 2.0
    log: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    attention: str = "fused"
    grid_intensity: float | None = None
    price_per_hour: float | None = None
    writer: str | None = None

    def __post_init__(self) -> None:
        check_attention(self.attention)
        for what, count, least in (
            ("--threads", self.threads, 1),
            ("--processes", self.processes, 1),
            ("--workers", self.workers, 0),
            ("--accumulation", self.accumulation, 1),
        ):
            if count is not None and count < least:
                raise RequestError(f"{what} must be an integer of at least {least}, not {count}")
        for what, amount in (("--minutes", self.minutes), ("--save-every", self.save_every)):
            if amount is not None and not (amount > 0 and math.isfinite(amount)):
                raise RequestError(f"{what} must be above zero, not {amount}")

    def to_json(self) -> str:
        """The request as one line of JSON."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        paths = {name: None if plain[name] is None else str(plain[name]) for name in ("study", "init")}
        return json.dumps(plain | paths | {"recipe": self.recipe.model_dump(mode="json")})

    @classmethod
    def from_json(cls, line: str) -> "TrainingRequest":
        """The request from a line that `to_json` made."""
        data = json.loads(line)
        return cls(
            **data
            | {
                "recipe": Recipe.model_validate_json(json.dumps(data["recipe"])),
                "study": Path(data["study"]),
                "init": None if data["init"] is None else Path(data["init"]),
                "plugins": tuple(data["plugins"]),
                "log": tuple(data["log"]),
            }
        )
