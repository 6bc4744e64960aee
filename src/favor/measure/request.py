"""What is asked of a child process: one model, one phase, and the conditions to measure it under."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from favor.errors import RequestError, unknown_name
from favor.machine.precision import PRECISIONS, resolve_precision
from favor.records.schema import Scalar
from favor.trace.conditions import (
    IMAGENET_IMAGES,
    OPTIMIZERS,
    PHASES,
    REFERENCE_BATCH,
    Phase,
    check_batch_size,
    check_counts,
)

DEFAULT_BUDGET = 20.0


def _check_seconds(*times: tuple[str, float | None]) -> None:
    for what, amount in times:
        if amount is not None and not 0 < amount < float("inf"):
            raise RequestError(f"the {what} must be a number of seconds above zero, not {amount}")


def _check_rates(*rates: tuple[str, float | None]) -> None:
    for what, rate in rates:
        if rate is not None and not 0 <= rate < float("inf"):
            raise RequestError(f"the {what} must be a number from zero up, not {rate}")


def _check_choice(what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise unknown_name(what, value, known, "choose from " + ", ".join(known))


@dataclass(frozen=True)
class Settings:
    """What is asked of all models; None stands for what fits the model, the device or the machine.

    A `batch_size` of None is the best for inference and the device's usual one for training.
    """

    phases: tuple[Phase, ...] = ("inference",)
    device: str | None = None
    precision: str = "fp32"
    compiled: bool = False
    img_size: int | None = None
    num_classes: int = 1000
    batch_size: int | Literal["best"] | None = None
    budget: float = DEFAULT_BUDGET
    time_limit: float | None = None
    memory_limit: int | None = None
    threads: int | None = None
    optimizer: str = "lamb"
    reference_batch: int = REFERENCE_BATCH
    epoch_images: int = IMAGENET_IMAGES
    fit_memory: int | None = None
    grid_intensity: float | None = None
    price_per_hour: float | None = None

    def __post_init__(self) -> None:
        for phase in self.phases:
            _check_choice("phase", phase, PHASES)
        check_batch_size(None if self.batch_size == "best" else self.batch_size)
        _check_all(self)


@dataclass(frozen=True)
class Request:
    """A measurement to make. A `batch_size` of None is searched; sizes of memory are in bytes, times in seconds.

    Without `energy` no meter is looked for: its window takes seconds that a short study does not have.
    """

    name: str
    phase: Phase
    img_size: int
    num_classes: int
    device: str
    device_label: str
    precision: str
    compiled: bool
    batch_size: int | None
    budget: float
    time_limit: float
    memory_limit: int | None
    threads: int
    optimizer: str
    reference_batch: int
    epoch_images: int
    fit_memory: int | None
    grid_intensity: float | None
    price_per_hour: float | None
    plugins: tuple[str, ...]
    energy: bool = True

    def __post_init__(self) -> None:
        _check_choice("phase", self.phase, PHASES)
        check_batch_size(self.batch_size)
        _check_all(self)

    def conditions(self) -> dict[str, Scalar]:
        """The conditions on the record as far as they are asked for; the model adds its operating point."""
        asked: dict[str, Scalar | None] = {
            "img_size": self.img_size,
            "num_classes": self.num_classes,
            "device": self.device_label,
            "precision": resolve_precision(self.precision, self.device.partition(":")[0]),
            "compile": self.compiled,
            "batch_size": self.batch_size,
            "batch": "best" if self.batch_size is None else "given",
            "fit_memory": self.fit_memory,
            "grid_intensity": self.grid_intensity,
            "price_per_hour": self.price_per_hour,
        }
        if self.phase == "training":
            asked |= {
                "optimizer": self.optimizer,
                "reference_batch": self.reference_batch,
                "epoch_images": self.epoch_images,
            }
        return {name: value for name, value in asked.items() if value is not None}

    def to_json(self) -> str:
        """The request on one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> "Request":
        """The request on a line that `to_json` made."""
        data = json.loads(line)
        return cls(**data | {"plugins": tuple(data["plugins"])})


def _check_all(asked: Settings | Request) -> None:
    """Refuse what neither settings nor a request can have."""
    _check_choice("precision", asked.precision, PRECISIONS)
    _check_choice("optimizer", asked.optimizer, OPTIMIZERS)
    check_counts(
        ("image size", asked.img_size),
        ("number of classes", asked.num_classes),
        ("number of threads", asked.threads),
        ("reference batch", asked.reference_batch),
        ("number of images in an epoch", asked.epoch_images),
        ("memory limit in bytes", asked.memory_limit),
        ("memory to fit in bytes", asked.fit_memory),
    )
    _check_seconds(("budget", asked.budget), ("time limit", asked.time_limit))
    _check_rates(("grid intensity", asked.grid_intensity), ("price per hour", asked.price_per_hour))
