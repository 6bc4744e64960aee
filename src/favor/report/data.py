"""Everything that the page's script reads, as one JSON text that is safe inside an HTML script element."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from favor.analyze.comparison import DEFAULT_SCOPE, Comparison, Scope
from favor.analyze.creation import num_classes_of
from favor.analyze.limits import Limit
from favor.analyze.setting import Setting
from favor.analyze.trainings import LEAST_TO_COMPARE, to_be_comparable
from favor.metrics import METRICS
from favor.records import Gathered
from favor.report.class_style import CLASS_STYLES, UNKNOWN_CLASS
from favor.report.columns import Texts
from favor.report.progress import Track, unseen
from favor.report.questions import Questions, limits_of, questions_of
from favor.report.views import AccuracyView, Views, views_of

_LEAST_TO_DRAW = 5  # models; with fewer that are not the reader's own, the page opens with another cost
_FIRST_COSTS = ("throughput", "latency_p50", "inference_memory", "params", "macs")
_FEW = 5  # times more models in all pipelines together: as with timm's networks
_USUAL_DATASET = "imagenet-1k"
# What ends a script element or a line of script, written so that JSON reads the same.
_ESCAPES = {sign: f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


@dataclass(frozen=True)
class Opening:
    """What the page shows first: positions of an accuracy view and a setting, and the metrics at the axes.

    `dataset` is the accuracy view that the recommendation asks about.
    """

    accuracy: int
    dataset: int
    setting: int
    x: str
    y: str


@dataclass(frozen=True, eq=False)
class PageData:
    """What the script reads."""

    views: Views
    questions: Questions
    texts: Texts
    opening: Opening
    command: str


def page_data(gathered: Gathered, scope: Scope = DEFAULT_SCOPE, track: Track = unseen) -> PageData:
    """The page's data from records."""
    texts = Texts()
    views = views_of(gathered.table, texts, scope, track)
    questions = questions_of(gathered.table, views, texts, track)
    command = shlex.join(["favor", "recommend", *(word for path in gathered.paths for word in ("--study", path))])
    return PageData(views, questions, texts, _opening(views, gathered.table), command)


def as_json(data: PageData) -> str:
    """The data as JSON."""
    views = data.views
    metrics = {name: asdict(METRICS[name]) for name in _as_read() if _has(views, name)}
    content: dict[str, Any] = {
        "metrics": metrics,
        "classes": [asdict(style) for style in (*CLASS_STYLES.values(), UNKNOWN_CLASS)],
        "models": asdict(views.models),
        "counted": _plain(views.counted),
        "accuracies": [_accuracy(view) for view in views.accuracies],
        "settings": [
            {"text": text, "quantized": view.setting.is_quantized, "columns": _plain(view.columns)}
            for text, view in zip(_setting_texts(views), views.settings, strict=True)
        ],
        "limits": [
            {
                "option": option,
                "metric": metric,
                "bound": option[:3],
                "tested": Limit.named(option, 0.0).tested,
                "title": METRICS[metric].title,
                "unit": unit,
                "factor": factor,
            }
            for option, (metric, unit, factor) in limits_of(views).items()
        ],
        "questions": asdict(data.questions),
        "opening": asdict(data.opening),
        "command": data.command,
        "texts": list(data.texts.known),
    }
    return escaped(content)


def _setting_texts(views: Views) -> list[str]:
    """The settings in words; where models ran in several runtimes, eager mode is named too."""
    runtimes = {view.setting.runtime for view in views.settings}
    named = [
        replace(view.setting, runtime=view.setting.runtime_name) if len(runtimes) > 1 else view.setting
        for view in views.settings
    ]
    return [str(setting) or "setting unknown" for setting in named]


def escaped(content: object) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element.

    >>> escaped({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign, written in _ESCAPES.items():  # many times faster than `translate` where few signs are replaced
        text = text.replace(sign, written)
    return text


def _as_read() -> list[str]:
    """All metrics in the order in which people ask for them: how good, what it costs to run, what it counts."""
    return sorted(METRICS, key=lambda name: (METRICS[name].group != "quality", not METRICS[name].depends_on_device))


def _plain(columns: Mapping[str, Any]) -> dict[str, Any]:
    # Not `asdict`, which copies every number.
    return {name: vars(column) for name, column in columns.items()}


def _accuracy(view: AccuracyView) -> dict[str, Any]:
    return {
        "dataset": view.scope.dataset,
        "basis": str(view.basis or f"{view.scope.dataset}, any pipeline and resolution"),
        "note": view.note,
        "any": view.scope.any_pipeline,
        "pipeline": view.pipeline,
        "columns": _plain(view.columns),
        "flags": view.flags,
        "classes": num_classes_of(view.scope.dataset),
        "lengths": view.lengths,
        "remedy": to_be_comparable(view.rows),
    }


def _has(views: Views, name: str) -> bool:
    of_views = (*(view.columns for view in views.accuracies), *(view.columns for view in views.settings))
    groups = (views.counted, *of_views)
    return any(name in columns for columns in groups)


def _opening(views: Views, table: pd.DataFrame) -> Opening:
    """The dataset that the reader trained on, else the usual one; the first cost that enough models have with it.

    Costs are in the setting in which `favor pareto` compares them.
    """
    by_dataset = [
        position
        for position, view in enumerate(views.accuracies)
        if not view.scope.any_pipeline and view.pipeline is None
    ]

    def order(position: int) -> tuple[bool, bool]:
        view = views.accuracies[position]
        return not _is_own(view), view.scope.dataset != _USUAL_DATASET

    accuracy = min(by_dataset, key=order, default=-1)
    shown = _larger_view(views, accuracy)
    trained = _known(views.accuracies[shown].columns, "top1") if shown >= 0 else set()
    comparison = Comparison(table, metrics=_FIRST_COSTS)
    positions: dict[Setting | None, int] = {view.setting: at for at, view in enumerate(views.settings)}
    for name in _FIRST_COSTS:
        position = positions.get(comparison.run_setting([name]))
        if position is not None:
            view = views.settings[position]
            least = LEAST_TO_COMPARE if view.is_own else _LEAST_TO_DRAW
            if len(_known(view.columns, name) & trained) >= least:
                return Opening(shown, accuracy, position, name, "top1")
        if name in views.counted:
            return Opening(shown, accuracy, 0 if views.settings else -1, name, "top1")
    return Opening(shown, accuracy, 0 if views.settings else -1, "params", "top1")


def _is_own(view: AccuracyView) -> bool:
    """Whether the reader trained enough of the models to compare them."""
    return int((view.rows["top1_source"] == "measured").sum()) >= LEAST_TO_COMPARE


def _larger_view(views: Views, accuracy: int) -> int:
    """The view to explore first: all pipelines of the dataset if the deciding one, not the reader's, has few models."""
    if accuracy < 0 or _is_own(views.accuracies[accuracy]):
        return accuracy
    for position, view in enumerate(views.accuracies):
        if view.scope.any_pipeline and view.scope.dataset == views.accuracies[accuracy].scope.dataset:
            few = len(_known(views.accuracies[accuracy].columns, "top1")) * _FEW < len(_known(view.columns, "top1"))
            return position if few else accuracy
    return accuracy


def _known(columns: Mapping[str, Any], name: str) -> set[int]:
    """The positions of the models that have a number."""
    return {at for at, value in enumerate(columns[name].value) if value is not None} if name in columns else set()
