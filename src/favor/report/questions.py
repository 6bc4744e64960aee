"""Every question that the page's reader can put to `favor recommend`, and what decides it.

Which numbers a recommendation rests on depends on what is asked, not on how high the limits are: this is found here,
once for each question, so that the page has only to filter and to sort.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import pandas as pd

from favor.analyze.assemble import comparable
from favor.analyze.devices import has_place
from favor.analyze.guide import GuideEntry, guide_entries
from favor.analyze.limits import LIMITED
from favor.analyze.ranking import PREFERENCES, lack_of_numbers, published_advice
from favor.analyze.settings import (
    LEAST_TO_COMPARE,
    RUN_CONDITIONS,
    RunSetting,
    machines_of,
    recorded_devices,
    run_setting,
    runs,
)
from favor.metrics import METRICS
from favor.records.published import pareto_optimal
from favor.report.columns import Texts
from favor.report.track import Track, unseen
from favor.report.views import AccuracyView, Views

# The unit that the page asks for, by the unit that is stored, and the factor between them.
_ASKED_IN = {"%": ("%", 1.0), "B": ("MiB", 2.0**20), "s": ("ms", 1e-3), "1": ("M", 1e6)}
# The limits of `favor recommend`, by option, with the metric and the unit that the page asks for.
LIMITS: dict[str, tuple[str, str, float]] = {
    option: (metric, *_ASKED_IN[METRICS[metric].unit]) for option, metric in LIMITED.items()
}
_RUNNING = tuple(option for option, (metric, *_) in LIMITS.items() if runs(metric))
_WISHES: tuple[str | None, ...] = (None, *PREFERENCES)


@dataclass(frozen=True)
class Deciding:
    """What a question is decided by: the objective's numbers in a setting, or a published front's models.

    `setting` is a position in the views' settings; `kept` the number of the text that the objective's setting must
    have; `front` the positions of the models on the published front. `undecided` says why nothing can be ranked.
    """

    setting: int | None
    objective: str
    kept: int | None
    ranked_by: Literal["numbers", "published front"]
    front: tuple[int, ...] | None
    undecided: str | None
    note: str | None


@dataclass(frozen=True)
class Questions:
    """By accuracy view (a position), device, wish and which of the limits on costs are set: a position in `deciding`.

    The limits are the bits of a number, in the order of `running`.
    """

    devices: tuple[str | None, ...]
    wishes: tuple[str | None, ...]
    running: tuple[str, ...]
    deciding: list[Deciding]
    by_view: dict[int, list[list[list[int]]]]


def questions_of(table: pd.DataFrame, views: Views, texts: Texts, track: Track = unseen) -> Questions:
    """All questions on every data set, each on its one basis, and what decides them."""
    ran = _ran_or_measured(table)
    devices = _devices(views)
    fronts = guide_entries(pareto_optimal())
    numbered: dict[Deciding, int] = {}
    by_view = {}
    asked = [(position, accuracy) for position, accuracy in enumerate(views.accuracies) if accuracy.basis is not None]
    for position, accuracy in track(asked, "questions"):
        judge = _Judge(ran, views, accuracy, fronts, texts)
        by_view[position] = [
            [
                [
                    numbered.setdefault(judge.deciding(wish, device, limits), len(numbered))
                    for limits in _sets_of_limits()
                ]
                for wish in _WISHES
            ]
            for device in devices
        ]
    return Questions(devices, _WISHES, _RUNNING, list(numbered), by_view)


def _ran_or_measured(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that choosing a setting looks at: those with a cost, and those that tell how busy a machine was."""
    costs = [name for name in METRICS if name in table.columns and runs(name)]
    rows = table[costs].notna().any(axis=1) | machines_of(table).notna()
    told = [name for name in ("name", "status", "source", *RUN_CONDITIONS) if name in table.columns]
    return table.loc[rows, [*told, *costs]]


def _devices(views: Views) -> tuple[str | None, ...]:
    """What a reader can choose between: devices that can decide, or their machines; nothing where there is but one."""
    asked = {metric for metric, *_ in LIMITS.values()} | {
        metric for metrics in PREFERENCES.values() for metric in metrics
    }
    deciding = [view.setting for view in views.settings if asked.intersection(view.columns)]
    choices = dict.fromkeys(setting.machine or setting.device for setting in deciding)
    return (None, *(choice for choice in choices if choice is not None and len(choices) > 1))


def _sets_of_limits() -> list[tuple[str, ...]]:
    """All sets of the limits on costs, in the order of their bits.

    >>> _sets_of_limits()
    [(), ('max_memory',), ('max_latency',), ('max_memory', 'max_latency')]
    """
    return [
        tuple(option for option, asked in zip(_RUNNING, reversed(bits), strict=True) if asked)
        for bits in product((False, True), repeat=len(_RUNNING))
    ]


class _Judge:
    """Finds what decides questions on one data set."""

    def __init__(
        self,
        ran: pd.DataFrame,
        views: Views,
        accuracy: AccuracyView,
        fronts: Sequence[GuideEntry],
        texts: Texts,
    ) -> None:
        self.views, self.fronts, self.texts = views, fronts, texts
        self.trained = accuracy.rows["top1"].notna()
        self.models = accuracy.rows[self.trained]
        self.ran = ran[ran["name"].isin(self.models["name"])]
        self.devices = recorded_devices(self.ran)
        self.places = {view.setting.text: place for place, view in enumerate(views.settings)}
        self.found: dict[tuple[str | None, tuple[str, ...]], RunSetting | None] = {}
        self.compared: dict[tuple[str, int], tuple[str | None, int]] = {}

    def deciding(self, wish: str | None, device: str | None, limits: Sequence[str]) -> Deciding:
        limited = [LIMITS[option][0] for option in limits]
        if not has_place(device, self.devices):
            nowhere = f"no model with an accuracy here has run on {device}"
            return Deciding(None, "top1", None, "numbers", None, nowhere, None)
        if wish is None:
            return self._by_numbers("top1", device, limited)[0]
        # As in the ranking: of several metrics for a preference the first among those that most models have.
        possible = [self._by_numbers(metric, device, limited) for metric in PREFERENCES[wish]]
        best, known = max(possible, key=lambda one: one[1])
        if known >= LEAST_TO_COMPARE:
            return best
        lack = lack_of_numbers(best.objective, known, device)
        return self._by_front(wish, device, best, lack) or Deciding(
            best.setting, best.objective, None, "numbers", None, f"{wish} cannot be ranked: {lack}", None
        )

    def _by_numbers(self, metric: str, device: str | None, limited: Sequence[str]) -> tuple[Deciding, int]:
        """The setting to compare the models in, and how many have the metric there."""
        setting = self._setting(device, tuple(dict.fromkeys([metric, *limited])))
        place = None if setting is None else self.places[setting.text]
        kept, known = None, len(self.models)
        if metric in self.views.counted:
            column = self.views.counted[metric].value
            known = sum(there and column[at] is not None for at, there in enumerate(self.trained))
        elif runs(metric):
            kept, known = self._in_setting(metric, place)
        return Deciding(place, metric, self.texts.number(kept), "numbers", None, None, None), known

    def _in_setting(self, metric: str, place: int | None) -> tuple[str | None, int]:
        if place is None or metric not in self.views.settings[place].rows.columns:
            return None, 0
        if (metric, place) not in self.compared:
            view = self.views.settings[place]
            rows, kept, _ = comparable(view.rows[self.trained.to_numpy()], metric, view.setting)
            self.compared[metric, place] = kept, int(rows[metric].notna().sum())
        return self.compared[metric, place]

    def _setting(self, device: str | None, metrics: tuple[str, ...]) -> RunSetting | None:
        # A metric that the table does not have changes nothing, and most questions are about such.
        known = tuple(name for name in metrics if runs(name) and name in self.ran.columns)
        if not known:
            return None
        if (device, known) not in self.found:
            self.found[device, known] = run_setting(self.ran, known, device)
        return self.found[device, known]

    def _by_front(self, wish: str, device: str | None, best: Deciding, lack: str) -> Deciding | None:
        """The paper's advice in place of numbers, for its own device; None where it has none."""
        advice = published_advice(wish, device, lack, self.fronts)
        if advice is None:
            return None
        there = tuple(int(at) for at in self.models.index[advice.holds(self.models)])
        return Deciding(best.setting, "top1", None, "published front", there, None, advice.told) if there else None
