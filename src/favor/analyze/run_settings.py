"""The run settings of a table, and the one in which its models can be compared best."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from favor.analyze.devices import device_kind, require_known
from favor.analyze.selection import numbers
from favor.analyze.setting import (
    RUN_CONDITIONS,
    Setting,
    column_of,
    models_by_machine,
    numbered_settings,
    recorded_devices,
    source_order,
)
from favor.analyze.trainings import LEAST_TO_COMPARE
from favor.metrics import DEVICE_METRICS, METRICS


class RunSettings:
    """The run settings of a table: what of each is known of how many models, to choose one to compare in."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.devices = recorded_devices(table)
        self._rows = table[table["status"] == "ok"] if "status" in table.columns else table
        self._of_row, self._settings = numbered_settings(self._rows, RUN_CONDITIONS)
        # One number per setting and model, and the setting of each, so that models are counted without grouping rows.
        names, different = pd.factorize(self._rows["name"])
        pairs, self._pair_of_row = np.unique(self._of_row * max(len(different), 1) + names, return_inverse=True)
        self._setting_of_pair = pairs // max(len(different), 1)
        self._sources = source_order(column_of(self._rows, "source"))
        self._popularity = models_by_machine(self._rows)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """All of them."""
        return tuple(self._settings)

    def best(self, metrics: Sequence[str] = (), device: str | None = None) -> Setting | None:
        """The run setting to compare models in by all the metrics together, or by any where none is named.

        It is on the device (or machine) asked for where that has numbers, else on a like one; then the one with the
        best source, of the machine on which most models were measured, and with the most models. Of equal ones it is
        eager mode; integers come last, since accuracies are those of float models. None where no row ran.
        """
        require_known(device, self.devices)
        asked = [name for name in metrics if METRICS[name].depends_on_device]
        columns = [name for name in (asked or DEVICE_METRICS) if name in self._rows.columns]
        if (metrics and not asked) or not columns:
            return None
        known = [np.isfinite(numbers(self._rows, name)) for name in columns]
        ran = np.logical_or.reduce(known)
        best_source = np.full(len(self._settings), np.inf)
        np.minimum.at(best_source, self._of_row[ran], self._sources[ran])
        of_pair = [np.bincount(self._pair_of_row[mask], minlength=len(self._setting_of_pair)) > 0 for mask in known]
        # A column that is wanted and that the table does not have is known of no model; the others still decide.
        models = self._count(np.logical_and.reduce(of_pair) if asked else np.logical_or.reduce(of_pair))
        of_first = self._count(of_pair[0])

        def order(at: int) -> tuple[bool, bool, bool, bool, float, int, int, int, bool, str]:
            setting = self._settings[at]
            return (
                models[at] == 0,
                device is not None and not setting.is_on(device),
                setting.is_quantized,
                models[at] < LEAST_TO_COMPARE,
                best_source[at],
                -self._popularity.get(setting.machine or "", 0),
                -models[at],
                -of_first[at],
                setting.runtime is not None,
                str(setting),
            )

        candidates = [
            at for at in np.unique(self._of_row[ran]) if device is None or _is_on_or_like(self._settings[at], device)
        ]
        return self._settings[min(candidates, key=order)] if candidates else None

    def _count(self, known_of_pair: np.ndarray) -> np.ndarray:
        """How many models of each setting are marked."""
        return np.bincount(self._setting_of_pair[known_of_pair], minlength=len(self._settings))


def _is_on_or_like(setting: Setting, device: str) -> bool:
    kind = device_kind(device)
    return setting.is_on(device) or (kind != "unknown" and device_kind(setting.device) == kind)
