"""Training memory estimated from the operations of a forward pass: a straight line with its interval.

Paper: Nauen et al., "Which Transformer to Favor", appendix D.9, Figure 20: VRAM [GB] = 25.43 GFLOP + 25.50, batch 2048.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from favor.analyze.intervals import CONFIDENCE
from favor.analyze.selection import complete_rows, numbers
from favor.errors import RequestError
from favor.metrics import metric

_GIGA = 1e9


@dataclass(frozen=True)
class MemoryEstimate:
    """Expected training memory in bytes and the 95 % interval for one more model."""

    memory: float
    low: float
    high: float


@dataclass(frozen=True)
class MemoryFit:
    """Memory [GB] = slope * operations [G] + intercept, over n rows at one batch size."""

    memory: str
    batch_size: int | None
    n: int
    slope: float
    intercept: float
    correlation: float
    residual: float
    mean_operations: float
    spread_operations: float

    def predict(self, operations: float) -> MemoryEstimate:
        """The memory that the line expects for a model with so many operations."""
        from scipy.special import stdtrit

        giga = operations / _GIGA
        expected = self.slope * giga + self.intercept
        leverage = 1 + 1 / self.n + (giga - self.mean_operations) ** 2 / self.spread_operations
        half = float(stdtrit(self.n - 2, 0.5 + CONFIDENCE / 2)) * self.residual * math.sqrt(leverage)
        return MemoryEstimate(expected * _GIGA, (expected - half) * _GIGA, (expected + half) * _GIGA)


def memory_from_flops(table: pd.DataFrame, memory: str = "train_memory") -> MemoryFit:
    """Fit training memory against operations; memory of the batch in the rows must be of the same batch size in all.

    >>> table = pd.DataFrame({"ops_mixed": [1e9, 2e9, 3e9, 4e9], "train_memory": [52e9, 75e9, 103e9, 126e9]})
    >>> round(memory_from_flops(table).slope, 1)
    25.0
    """
    usable, _ = complete_rows(table, ["ops_mixed", memory])
    batch_size = _only_batch_size(usable) if "batch_size" in metric(memory).conditions else None
    x, y = numbers(usable, "ops_mixed") / _GIGA, numbers(usable, memory) / _GIGA
    n = len(x)
    if n < 3 or x.max() == x.min():
        raise RequestError(f"a line with an interval needs three or more rows with ops_mixed and {memory}, found {n}")
    center, spread = float(x.mean()), float(((x - x.mean()) ** 2).sum())
    slope = float(((x - center) * y).sum()) / spread
    intercept = float(y.mean()) - slope * center
    residual = math.sqrt(float(((y - slope * x - intercept) ** 2).sum()) / (n - 2))
    return MemoryFit(
        memory=memory,
        batch_size=batch_size,
        n=n,
        slope=slope,
        intercept=intercept,
        correlation=float(np.corrcoef(x, y)[0, 1]),
        residual=residual,
        mean_operations=center,
        spread_operations=spread,
    )


def _only_batch_size(table: pd.DataFrame) -> int | None:
    """The batch size of all rows, None if it is unknown; memory at several batch sizes is refused."""
    if "batch_size" not in table.columns:
        return None
    sizes = sorted({int(size) for size in table["batch_size"].dropna()})
    if len(sizes) > 1:
        raise RequestError(f"training memory at batch sizes {', '.join(map(str, sizes))} cannot be fitted by one line")
    return sizes[0] if sizes else None
