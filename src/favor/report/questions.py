"""Every question that the page can ask `favor recommend`, and the numbers that decide it.

These numbers depend on which limits are set, not on their values, so `analyze.ranking` is called once per question and
the page only filters and sorts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import pandas as pd

from favor.analyze import Comparison, Limit, Request
from favor.analyze.devices import has_place
from favor.analyze.guide import GuideEntry, guide_entries
from favor.analyze.limits import LIMITED
from favor.analyze.ranking import PREFERENCES, rank
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
_RUNNING = tuple(option for option, (metric, *_) in LIMITS.items() if METRICS[metric].depends_on_device)
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
    devices = _devices(views)
    fronts = guide_entries(pareto_optimal())
    asked = {"top1", "params", *LIMITED.values(), *(metric for some in PREFERENCES.values() for metric in some)}
    comparison = Comparison(table, metrics=asked)
    numbered: dict[Deciding, int] = {}
    by_view = {}
    by_pipeline = [(position, view) for position, view in enumerate(views.accuracies) if not view.scope.any_pipeline]
    for position, view in track(by_pipeline, "questions"):
        judge = _Judge(comparison.rescoped(view.scope), views, view, fronts, texts)
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


def _devices(views: Views) -> tuple[str | None, ...]:
    """What a reader can choose between: devices that can decide, or their machines; nothing where there is but one."""
    asked = {*LIMITED.values(), *(metric for metrics in PREFERENCES.values() for metric in metrics)}
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
    """Asks what decides questions on one data set."""

    def __init__(
        self, comparison: Comparison, views: Views, view: AccuracyView, fronts: Sequence[GuideEntry], texts: Texts
    ) -> None:
        self.comparison = comparison.narrowed(view.rows.loc[view.rows["top1"].notna(), "name"])
        self.devices = self.comparison.run_settings.devices
        self.fronts, self.texts, self.scope = fronts, texts, view.scope
        self.positions = {setting.setting: position for position, setting in enumerate(views.settings)}
        self.models = {
            key: position for position, key in enumerate(zip(view.rows["name"], view.rows["img_size"], strict=True))
        }

    def deciding(self, wish: str | None, device: str | None, limits: Sequence[str]) -> Deciding:
        if not has_place(device, self.devices):
            nowhere = f"no model with an accuracy on this data set has run on {device}"
            return Deciding(None, "top1", None, "numbers", None, nowhere, None)
        asked = tuple(Limit.named(option, 0.0) for option in limits)
        request = Request(wish, asked, str(self.scope.dataset), device)
        ranking = rank(self.comparison, request, self.fronts)
        kept = self.comparison.compare_in(ranking.setting).settings.get(ranking.objective)
        front = None
        if ranking.ranked_by == "published front":
            front = tuple(self.models[key] for key in zip(ranking.rows["name"], ranking.rows["img_size"], strict=True))
        return Deciding(
            setting=None if ranking.setting is None else self.positions[ranking.setting],
            objective=ranking.objective,
            kept=self.texts.number(kept) if METRICS[ranking.objective].depends_on_device else None,
            ranked_by=ranking.ranked_by,
            front=front,
            undecided=ranking.undecided,
            note=ranking.notes[0] if front is not None else None,
        )
