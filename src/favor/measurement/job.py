"""The request to the measuring worker: one model, one phase, and the conditions."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from favor.machine.precision import resolve_precision
from favor.records.schema import Scalar
from favor.trace.attention import attention_conditions
from favor.trace.conditions import IMAGENET_IMAGES, REFERENCE_BATCH, Phase

DEFAULT_BUDGET = 20.0


@dataclass(frozen=True)
class MeasureJob:
    """Measure a model in one phase. If `batch_size` is None it is searched; memory is in bytes, times in seconds.

    Limits of None are set when the job starts. Without `energy` no meter is searched for, which saves seconds.
    """

    name: str
    phase: Phase
    img_size: int
    precision: str
    device: str
    device_label: str
    threads: int
    batch_size: int | None = None
    num_classes: int = 1000
    compile: bool = False
    attention: str = "fused"
    budget: float = DEFAULT_BUDGET
    time_limit: float | None = None
    memory_limit: int | None = None
    optimizer: str = "lamb"
    reference_batch: int = REFERENCE_BATCH
    epoch_images: int = IMAGENET_IMAGES
    fit_memory: int | None = None
    grid_intensity: float | None = None
    price_per_hour: float | None = None
    energy: bool = True
    plugins: tuple[str, ...] = ()

    @property
    def conditions(self) -> Mapping[str, Scalar]:
        """The requested conditions of the record: without budgets, limits and the operating point."""
        asked: dict[str, Scalar | None] = {
            "img_size": self.img_size,
            "num_classes": self.num_classes,
            "device": self.device_label,
            "precision": resolve_precision(self.precision, self.device.partition(":")[0]),
            "compile": self.compile,
            **attention_conditions(self.attention),
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

    def __str__(self) -> str:
        return f"{self.name}@{self.img_size} {self.phase} {self.precision}"

    def to_json(self) -> str:
        """The job as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> "MeasureJob":
        """The job from a line that `to_json` made."""
        data = json.loads(line)
        return cls(**data | {"plugins": tuple(data["plugins"])})
