"""The request to the measuring worker: one model, one phase, and the conditions."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from favor.machine.precision import resolve_precision
from favor.records.schema import EAGER, Scalar
from favor.runtime.names import PRECISIONS, TRAINING
from favor.trace.attention import attention_conditions
from favor.trace.conditions import IMAGENET_IMAGES, REFERENCE_BATCH, Phase

DEFAULT_BUDGET = 20.0
LOAD_BUDGET = 120.0
SCENARIOS = ("server", "single-stream", "multi-stream", "offline")


@dataclass(frozen=True)
class MeasureJob:
    """Measure a model in one phase. If `batch_size` is None it is searched; memory is in bytes, times in seconds.

    `device_label` is empty until a node of a cluster takes the job, and limits are None until it starts. Without
    `energy` no meter is searched for, which saves seconds. With `in_turns` inference is timed in turns with other
    workers. A load test finds the largest rate in a `scenario` with 99 % of the answers within `p99` seconds.
    `calibration` is a dataset and `checkpoint` a file or a run's folder with the hash of its content, all for int8;
    `exported` is where the files are that a runtime other than PyTorch opens.
    """

    name: str
    phase: Phase | Literal["load"]
    img_size: int
    precision: str
    device: str
    device_label: str
    threads: int
    batch_size: int | None = None
    num_classes: int = 1000
    runtime: str = EAGER
    calibration: str | None = None
    checkpoint: str | None = None
    checkpoint_hash: str | None = None
    exported: str | None = None
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
    in_turns: bool = False
    plugins: tuple[str, ...] = ()
    scenario: str = "server"
    p99: float | None = None

    @property
    def conditions(self) -> Mapping[str, Scalar]:
        """The requested conditions of the record: without budgets, limits and the operating point."""
        asked: dict[str, Scalar | None] = {
            "img_size": self.img_size,
            "num_classes": self.num_classes,
            "device": self.device_label or None,
            "precision": self._precision,
            "runtime": self.runtime,
            "calibration": self.calibration,
            "checkpoint": self._checkpoint,
            **attention_conditions(self.attention),
        }
        if self.phase == "load":
            asked |= {"scenario": self.scenario, "p99_limit": self.p99, "batching": "searched"}
        else:
            asked |= {
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

    @property
    def _precision(self) -> str:
        of_pytorch = self.precision in PRECISIONS
        return resolve_precision(self.precision, self.device.partition(":")[0]) if of_pytorch else self.precision

    @property
    def _checkpoint(self) -> str | None:
        """The name and the content of the checkpoint, which stay the same if its folder is moved."""
        if self.checkpoint is None:
            return None
        path = Path(self.checkpoint)
        if self.checkpoint_hash is None:  # a request of an older version, whose records have a part of the path
            return "/".join(path.parts[-2:])
        return f"{path.name} {self.checkpoint_hash}"

    @property
    def needs_file(self) -> bool:
        """Whether the runtime opens a file, and does not run the model itself."""
        return self.runtime not in TRAINING

    def __str__(self) -> str:
        runtime = "" if self.runtime == EAGER else f" {self.runtime}"
        scenario = f" {self.scenario}" if self.phase == "load" else ""
        return f"{self.name}@{self.img_size} {self.phase} {self.precision}{runtime}{scenario}"

    def to_json(self) -> str:
        """The job as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> "MeasureJob":
        """The job from a line that `to_json` made."""
        data = json.loads(line)
        return cls(**data | {"plugins": tuple(data["plugins"])})
