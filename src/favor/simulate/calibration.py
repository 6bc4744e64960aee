"""The calibration: the efficiencies of all operator classes, fitted once and shipped as data. Imports no torch."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from favor.errors import RequestError

FILE_NAME = "calibration.json"


@dataclass(frozen=True)
class Efficiency:
    """How far a class of operators gets: shares of the sustained peak and of the bandwidth, lane operations each."""

    matrix: float
    lanes: float
    memory: float


@dataclass(frozen=True)
class Residuals:
    """Spread of the logarithm of simulated over true time for families that were held out, as standard deviations.

    `within` is what remains on the device of the fit. The others are what its specification leaves open on another
    device, for the part of the time that each thing bounds.
    """

    within: float
    matrix: float
    lanes: float
    memory: float
    host: float
    training: float


@dataclass(frozen=True)
class Calibration:
    """Everything that was fitted; `device` is where. Times are seconds, `*_cycles` clock cycles."""

    device: str
    fitted_on: str
    networks: int
    tile_cycles: float
    step_cycles: float
    kernel_seconds: float
    training_factor: float
    residuals: Residuals
    classes: dict[str, Efficiency]

    def prices(self, groups: Sequence[str]) -> np.ndarray:
        """One over the efficiencies of the matrix units, lane operations, one over those of memory: 3 x kernels."""
        prices = {name: (1 / each.matrix, each.lanes, 1 / each.memory) for name, each in self.classes.items()}
        unknown = set(groups) - prices.keys()
        if unknown:
            raise RequestError(f"the calibration knows no operator class {min(unknown)!r}; fit it anew")
        return np.array([prices[group] for group in groups]).reshape(-1, 3).T

    def to_json(self) -> str:
        """The calibration as it is shipped."""
        return json.dumps(asdict(self), indent=1) + "\n"


def from_json(text: str) -> Calibration:
    """The calibration in a text that `to_json` made."""
    data: dict[str, Any] = json.loads(text)
    classes = {name: Efficiency(**values) for name, values in data.pop("classes").items()}
    return Calibration(**data | {"classes": classes, "residuals": Residuals(**data["residuals"])})


@cache
def shipped_calibration() -> Calibration:
    """The calibration inside the package."""
    return from_json((files("favor.simulate") / FILE_NAME).read_text(encoding="utf-8"))
