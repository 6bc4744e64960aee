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
    """How far a class of operators gets: shares of the sustained peak and of the bandwidth, lane operations each."""

    matrix: float
    lanes: float
    memory: float

    def slowed(self, factor: float) -> "Efficiency":
        """That of kernels which take so many times as long."""
        return Efficiency(self.matrix / factor, self.lanes * factor, self.memory / factor)


@dataclass(frozen=True)
class Training:
    """How many times as long kernels take in training, where most are those of the backward pass."""

    convolutions: float
    others: float

    def factor(self, group: str) -> float:
        """That of a class of operators; batch norms go with the convolutions.

        >>> Training(1.5, 1.1).factor("depthwise_small")
        1.5
        """
        return self.convolutions if group.startswith(_CONVOLUTIONAL) else self.others


@dataclass(frozen=True)
class Residuals:
    """Spread of the logarithm of simulated over true time for families that were held out, as standard deviations.

    `within` is what remains on the device of the fit, `full` what products of float32 add, which are not fitted. The
    others are what its specification leaves open on another device, for the part of the time that each thing bounds.
    """

    within: float
    matrix: float
    lanes: float
    memory: float
    host: float
    training: float
    full: float


@dataclass(frozen=True)
class Calibration:
    """Everything that was fitted; `device` is where. Times are seconds, `*_cycles` clock cycles."""

    device: str
    fitted_on: str
    networks: int
    tile_cycles: float
    step_cycles: float
    kernel_seconds: float
    training: Training
    residuals: Residuals
    classes: dict[str, Efficiency]

    def prices(self, groups: Sequence[str]) -> np.ndarray:
        """One over the efficiencies of the matrix units, lane operations, one over those of memory: 3 x kernels."""
        prices = {name: (1 / each.matrix, each.lanes, 1 / each.memory) for name, each in self.classes.items()}
        unknown = set(groups) - prices.keys()
        if unknown:
            raise RequestError(f"the calibration knows no operator class {min(unknown)!r}; fit it anew")
        return np.array([prices[group] for group in groups]).reshape(-1, 3).T

    def in_training(self) -> "Calibration":
        """The calibration for the passes of training."""
        slowed = {name: each.slowed(self.training.factor(name)) for name, each in self.classes.items()}
        return replace(self, classes=slowed)

    def to_json(self) -> str:
        """The calibration as it is shipped."""
        return json.dumps(asdict(self), indent=1) + "\n"


def from_json(text: str) -> Calibration:
    """The calibration in a text that `to_json` made."""
    data: dict[str, Any] = json.loads(text)
    classes = {name: Efficiency(**values) for name, values in data.pop("classes").items()}
    parts = {"classes": classes, "residuals": Residuals(**data["residuals"]), "training": Training(**data["training"])}
    return Calibration(**data | parts)


@cache
def shipped_calibration() -> Calibration:
    """The calibration inside the package."""
    return from_json((files("favor.simulation") / FILE_NAME).read_text(encoding="utf-8"))
