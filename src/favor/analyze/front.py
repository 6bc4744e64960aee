"""The one Pareto front of records: command, Python, page and figures ask here who is on it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from favor.analyze.assembling import with_failures
from favor.analyze.comparison import Comparison, comparable_rows
from favor.analyze.deviations import deviations_by_row
from favor.analyze.intervals import has_known_uncertainty
from favor.analyze.pareto import ParetoPoint, ParetoResult, pareto
from favor.analyze.recommendation import Reading, reading_of
from favor.analyze.selection import fitting
from favor.analyze.setting import Setting
from favor.analyze.trainings import Scope, not_comparable
from favor.errors import RequestError
from favor.metrics import QUALITIES


@dataclass(frozen=True, eq=False)
class Front:
    """The front of the models in one setting, its rows, and the comparison behind it.

    `run` is where and how they ran; None if no metric depends on it.
    """

    result: ParetoResult
    rows: pd.DataFrame
    comparison: Comparison
    run: Setting | None

    @property
    def other_runtimes(self) -> list[str]:
        """The other runtimes that models ran in on the same machine."""
        if self.run is None:
            return []
        place = (self.run.device, self.run.machine)
        known = self.comparison.run_settings.settings
        here = {setting.runtime_name for setting in known if (setting.device, setting.machine) == place}
        return sorted(here - {self.run.runtime_name})

    @property
    def without_intervals(self) -> int:
        """How many of the compared models have a number of unknown uncertainty."""
        compared = self.rows.iloc[self.result.rows]
        known = [has_known_uncertainty(compared, name) for name in self.result.metrics]
        return int((~np.logical_and.reduce(known)).sum())

    def readings(self, point: ParetoPoint) -> dict[str, Reading]:
        """The numbers of a point with their intervals, sources and flags."""
        row = self.rows.iloc[point.row]
        return {metric: reading_of(row, metric) for metric in self.result.metrics}

    def to_dict(self) -> dict[str, Any]:
        """Plain content for JSON: the points with all that is known of their numbers, and the flagged accuracies."""
        points = [
            vars(point) | {"readings": {metric: asdict(reading) for metric, reading in self.readings(point).items()}}
            for point in self.result.points
        ]
        flagged = {point.name: point.flag for point in self.result.points if point.flag is not None}
        setting = None if self.run is None else str(replace(self.run, runtime=self.run.runtime_name))
        return self.result.to_dict() | {"setting": setting, "points": points, "flagged": flagged}


def front_of(
    table: pd.DataFrame,
    metrics: Sequence[str],
    scope: Scope,
    device: str | None = None,
    among: str | None = None,
    *,
    strict: bool = False,
) -> Front:
    """The front of a wide table; a model with the accuracy of another configuration is flagged and not on the front.

    Accuracies of training runs of unequal length are refused.
    """
    rows, comparison = comparable_rows(table, metrics, scope, device, among)
    rows = fitting(with_failures(rows, table, metrics), among)
    flags = deviations_by_row(table, rows) if set(QUALITIES) & set(metrics) else None
    result = pareto(rows, metrics, strict=strict, flags=flags)
    compared = rows.iloc[result.rows[[flag is None for flag in result.flags]]]
    if flags is not None and (why := not_comparable(compared)):
        raise RequestError(why)
    return Front(result, rows, comparison, comparison.run_setting(metrics, device))
