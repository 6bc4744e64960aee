"""The calibration: the efficiencies of all operator classes, fitted once and shipped as data. Imports no torch."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from favor.errors import RequestError

FILE_NAME = "calibration.json"
_CONVOLUTIONAL = ("conv", "depthwise", "layout", "batch_norm")


@dataclass(frozen=True)
class Efficiency:
    """The efficiency of an operator class: shares of sustained peak and bandwidth, CUDA-core operations each."""

    matrix: float
    lanes: float
    memory: float

    def slowed(self, factor: float) -> "Efficiency":
        """The efficiency of kernels that take so many times as long."""
        return Efficiency(self.matrix / factor, self.lanes * factor, self.memory / factor)


@dataclass(frozen=True)
class Training:
    """How many times as long kernels take in training, where most belong to the backward pass."""

    convolutions: float
    others: float

    def factor(self, group: str) -> float:
        """The factor of an operator class; batch norms share that of convolutions.

        >>> Training(1.5, 1.1).factor("depthwise_small")
        1.5
        """
        return self.convolutions if group.startswith(_CONVOLUTIONAL) else self.others


@dataclass(frozen=True)
class Residuals:
    """Standard deviations of log(simulated / true time) for held-out families.

    `within` is the deviation on a device of the fit, `compiled` that of compiled models there, `full` the addition for
    float32 products, which are not fitted, `training` that for training, and `training_elsewhere` a further one on
    devices whose training no table shows. The others are the uncertainties of another device's specification, for the
    part of the time that each bounds.
    """

    within: float
    compiled: float
    matrix: float
    lanes: float
    memory: float
    host: float
    training: float
    training_elsewhere: float
    full: float


@dataclass(frozen=True)
class Calibration:
    """All fitted values. Times are in seconds, `*_cycles` in clock cycles.

    `devices` are those of the fit in eager mode, `devices_compiled` and `devices_training` those with a table of
    compiled models and of training. `device` is the one with the most memory bandwidth per CUDA-core operation, which
    tells least about the CUDA cores: other devices are compared with it. `newer` are the factors on the times of
    classes in eager mode since PyTorch 2.9; `classes` are those of 2.4.
    """

    device: str
    devices: tuple[str, ...]
    devices_compiled: tuple[str, ...]
    devices_training: tuple[str, ...]
    fitted_on: tuple[str, ...]
    networks: int
    tile_cycles: float
    step_cycles: float
    kernel_seconds: float
    training: Training
    residuals: Residuals
    classes: dict[str, Efficiency]
    newer: dict[str, float]

    def has_seen(self, device: str, *, training: bool, compiled: bool) -> bool:
        """Whether the fit has times of a device, in training, compiled, or eager inference."""
        return device in (self.devices_training if training else self.devices_compiled if compiled else self.devices)

    def prices(self, groups: Sequence[str]) -> np.ndarray:
        """Inverse efficiencies of tensor cores, CUDA-core operations, inverse efficiencies of memory: 3 x classes."""
        unknown = set(groups) - self.classes.keys()
        if unknown:
            raise RequestError(f"the calibration has no operator class {min(unknown)!r}; repeat the fit")
        efficiencies = (self.classes[group] for group in groups)
        return np.array([(1 / e.matrix, e.lanes, 1 / e.memory) for e in efficiencies]).reshape(-1, 3).T

    def in_newer_torch(self) -> "Calibration":
        """The calibration for the eager kernels of PyTorch 2.9 and newer."""
        slowed = {name: efficiency.slowed(self.newer.get(name, 1.0)) for name, efficiency in self.classes.items()}
        return replace(self, classes=slowed, newer={})

    def in_training(self) -> "Calibration":
        """The calibration for training."""
        slowed = {name: efficiency.slowed(self.training.factor(name)) for name, efficiency in self.classes.items()}
        return replace(self, classes=slowed)

    def to_json(self) -> str:
        """The calibration as JSON, as it is shipped."""
        return json.dumps(asdict(self), indent=1) + "\n"


def from_json(text: str) -> Calibration:
    """The calibration from JSON that `to_json` made."""
    data: dict[str, Any] = json.loads(text)
    classes = {name: Efficiency(**values) for name, values in data.pop("classes").items()}
    parts: dict[str, Any] = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
    parts |= {"residuals": Residuals(**data["residuals"]), "training": Training(**data["training"])}
    return Calibration(**data | parts, classes=classes)


@cache
def shipped_calibration() -> Calibration:
    """The built-in calibration."""
    return from_json((files("favor.simulation") / FILE_NAME).read_text(encoding="utf-8"))
