"""Every question that the page can ask `favor recommend`, and the numbers that decide it.

These numbers depend on which limits are set, not on their values, so `analyze.ranking` is called once per question and
the page only filters and sorts.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import pandas as pd

from favor.analyze import Comparison, Limit, Request
from favor.analyze.best_runtime import in_precision, in_runtime
from favor.analyze.devices import has_place
from favor.analyze.guide import GuideEntry, guide_entries
from favor.analyze.limits import ALL_LIMITED, LIMITED
from favor.analyze.ranking import PREFERENCES, rank
from favor.analyze.setting import EAGER, Setting, column_of
from favor.analyze.trained_as import with_benchmark_rows
from favor.errors import RequestError
from favor.metrics import DEVICE_METRICS, METRICS
from favor.records.published import pareto_optimal
from favor.report.columns import Texts
from favor.report.progress import Track, unseen
from favor.report.views import AccuracyView, Views

# The unit that the page asks for, by the unit that is stored, and the factor between them.
_ASKED_IN = {"%": ("%", 1.0), "B": ("MiB", 2.0**20), "s": ("ms", 1e-3), "1": ("M", 1e6)}
# The limits of `favor recommend`, by option, with the metric and the unit that the page asks for. `--qps` is left out:
# it needs load tests at the latency that the reader would type.
LIMITS: dict[str, tuple[str, str, float]] = {
    option: (metric, *_ASKED_IN[METRICS[metric].unit]) for option, metric in ALL_LIMITED.items() if option != "qps"
}
_DECISIVE = {*(metric for metric, *_ in LIMITS.values()), *(name for names in PREFERENCES.values() for name in names)}
_WISHES: tuple[str | None, ...] = (None, *PREFERENCES)


@dataclass(frozen=True)
class Deciding:
    """The basis of an answer: the objective's numbers in a setting, or the models of a published front.

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

    The limits are the bits of a number, in the order of `running`. A device is a choice of the reader, with the runtime
    where there are several; `options` are the words of `favor recommend` for it.
    """

    devices: tuple[str | None, ...]
    options: tuple[tuple[str, ...], ...]
    wishes: tuple[str | None, ...]
    running: tuple[str, ...]
    deciding: list[Deciding]
    by_view: dict[int, list[list[list[int]]]]


def limits_of(views: Views) -> dict[str, tuple[str, str, float]]:
    """The limits that the page asks for: the usual ones, and the others if any record has the metric."""
    recorded = {metric for view in views.settings for metric in view.columns}
    return {option: limit for option, limit in LIMITS.items() if option in LIMITED or limit[0] in recorded}


def questions_of(table: pd.DataFrame, views: Views, texts: Texts, track: Track = unseen) -> Questions:
    """All questions on every dataset, each on its one basis, and what decides them."""
    places = _places(views)
    fronts = guide_entries(pareto_optimal())
    running = tuple(option for option in limits_of(views) if METRICS[LIMITS[option][0]].depends_on_device)
    table = with_benchmark_rows(table)
    numbered: dict[Deciding, int] = {}
    by_view = {}
    by_pipeline = [(position, view) for position, view in enumerate(views.accuracies) if not view.scope.any_pipeline]
    for position, view in track(by_pipeline, "questions"):
        # Only a model with an accuracy can be favored; the records of the others would only take time.
        of_dataset = table[table["name"].isin(view.rows.loc[view.rows["top1"].notna(), "name"])]
        judges = {
            run: _Judge(_comparison(of_dataset, *run, view), views, view, fronts, texts)
            for run in dict.fromkeys(place.run for place in places)
        }
        by_view[position] = [
            [
                [
                    numbered.setdefault(judges[place.run].deciding(wish, place.device, limits), len(numbered))
                    for limits in _sets_of(running)
                ]
                for wish in _WISHES
            ]
            for place in places
        ]
    options = tuple(place.options for place in places)
    return Questions(tuple(place.text for place in places), options, _WISHES, running, list(numbered), by_view)


@dataclass(frozen=True)
class _Place:
    """A device or machine, a runtime and a precision to ask for; None is any device, and the only one of the others."""

    device: str | None = None
    runtime: str | None = None
    precision: str | None = None

    @property
    def run(self) -> tuple[str | None, str | None]:
        return self.runtime, self.precision

    @property
    def text(self) -> str | None:
        return None if self.device is None else ", ".join(filter(None, (self.device, *self.run)))

    @property
    def options(self) -> tuple[str, ...]:
        asked = {"--device": self.device, "--runtime": self.runtime, "--precision": self.precision}
        return tuple(word for option, value in asked.items() if value for word in (option, value))


def _places(views: Views) -> tuple[_Place, ...]:
    """The choices of a reader: devices that can decide, or their machines; none if there is only one.

    Where models ran in several runtimes, each is a choice of its own: a question never mixes two. The same holds for
    precisions where a device ran in several.
    """
    deciding = [view.setting for view in views.settings if _DECISIVE.intersection(view.columns)]
    runtimes = len({setting.runtime for setting in deciding}) > 1
    floats: dict[tuple[str | None, str], set[str]] = defaultdict(set)
    for setting in deciding:
        if setting.precision is not None and not setting.is_quantized:
            floats[setting.machine or setting.device, setting.runtime_name].add(setting.precision)
    precisions = max(map(len, floats.values()), default=0) > 1
    found = dict.fromkeys(
        _Place(
            setting.machine or setting.device,
            setting.runtime_name if runtimes else None,
            setting.precision if precisions else None,
        )
        for setting in deciding
        if not (precisions and setting.is_quantized)  # its accuracy is not that of the page
    )
    choices = [place for place in found if place.device is not None and len(found) > 1]
    usual = _Place(runtime=EAGER if runtimes else None, precision="fp32" if precisions else None)
    return (usual, *choices)


def _comparison(table: pd.DataFrame, runtime: str | None, precision: str | None, view: AccuracyView) -> Comparison:
    return Comparison(in_precision(in_runtime(table, runtime), precision), view.scope, metrics=_DECISIVE)


def _sets_of(options: Sequence[str]) -> list[tuple[str, ...]]:
    """All sets of options, in the order of their bits.

    >>> _sets_of(["max_memory", "max_latency"])
    [(), ('max_memory',), ('max_latency',), ('max_memory', 'max_latency')]
    """
    return [
        tuple(option for option, asked in zip(options, reversed(bits), strict=True) if asked)
        for bits in product((False, True), repeat=len(options))
    ]


class _Judge:
    """Asks what decides questions on one dataset."""

    def __init__(
        self, comparison: Comparison, views: Views, view: AccuracyView, fronts: Sequence[GuideEntry], texts: Texts
    ) -> None:
        # As `rank` narrows it, which then keeps what this comparison has cached.
        self.comparison = comparison.narrowed(comparison.compare_in(None).trained["name"])
        self.devices = self.comparison.run_settings.devices
        self.fronts, self.texts, self.scope = fronts, texts, view.scope
        self.positions = {setting.setting: position for position, setting in enumerate(views.settings)}
        self.models = {
            key: position for position, key in enumerate(zip(view.rows["name"], view.rows["img_size"], strict=True))
        }
        self.measured = {name for name in DEVICE_METRICS if column_of(self.comparison.models, name).notna().any()}
        self.by_settings: dict[tuple[str | None, str | None, tuple[Setting | None, ...]], Deciding] = {}

    def deciding(self, wish: str | None, device: str | None, options: Sequence[str]) -> Deciding:
        """What decides; limits matter only through the run settings that they select."""
        if not has_place(device, self.devices):
            nowhere = f"no model with an accuracy on this dataset has run on {device}"
            return Deciding(None, "top1", None, "numbers", None, nowhere, None)
        # A limit on something that no model has a number of changes nothing.
        limits = tuple(Limit.named(option, 0.0) for option in options if LIMITS[option][0] in self.measured)
        limited = [limit.metric for limit in limits]
        settings = tuple(
            self.comparison.run_setting(list(dict.fromkeys([objective, *limited])), device)
            for objective in (("top1",) if wish is None else PREFERENCES[wish])
        )
        key = (wish, device, settings)
        if key not in self.by_settings:
            self.by_settings[key] = self._decide(wish, device, limits)
        return self.by_settings[key]

    def _decide(self, wish: str | None, device: str | None, limits: tuple[Limit, ...]) -> Deciding:
        request = Request(wish, limits, str(self.scope.dataset), device)
        try:
            ranking = rank(self.comparison, request, self.fronts)
        except RequestError as refused:  # as where only models in int8, whose accuracy is unknown, have all numbers
            return Deciding(None, "top1", None, "numbers", None, str(refused), None)
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
