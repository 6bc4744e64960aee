"""The guide: the main constraint, then the phase, then the models to favor (Figure 6)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt

from favor.analyze import GuideEntry, guide
from favor.records.published import GUIDE_CLASSES
from favor.report.class_style import UNKNOWN_CLASS
from favor.report.figures.evidence import Evidence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.front_members import FrontMembers, Member, front_members, sources_of, why_none_is_yours
from favor.report.figures.theme import Rows, class_encodings, layered, one_plot

_LINE_HEIGHT = 17
_CONSTRAINT, _PHASE, _MODEL = 0.0, 0.3, 0.62  # where the columns start, as shares of the width
_LINK = 0.03
_LONGEST = 130  # pixels of a text, so that it ends on a phone's screen


@dataclass(frozen=True)
class Suggestion:
    """A line of the guide: the family that it leads to, and the models of the family with a known accuracy."""

    constraint: str
    phase: str
    name: str
    class_title: str
    models: str


def guide_figure(evidence: Evidence) -> Figure:
    """Figure 6: the published part holds the classes that the figure's caption names, the reader's own all."""
    fronts = front_members(evidence)
    titles = evidence.titles
    entries = [entry for front in fronts for entry in _entries(front, evidence.base_size or 224, titles)]
    lines = [
        Suggestion(branch.constraint, branch.phase, entry.title, entry.how, ", ".join(entry.models[:4]))
        for branch in guide(entries, evidence.rows(["top1"])).branches
        for entry in branch.suggestions
    ]
    outside = dict.fromkeys(member.name for front in fronts for member in front.members if _is_outside(member))
    left_out = f" On a front, but in no class of the taxonomy: {', '.join(outside)}." if outside else ""
    caption = (
        "Choose the main constraint, then the phase in which it matters; the models there are on that Pareto front "
        f"with accuracy.{left_out}{why_none_is_yours(evidence)} {sources_of(fronts)}"
    )
    chart = one_plot(_chart(lines), height=_LINE_HEIGHT * len(lines))
    return Figure("benchmark-guide", BENCHMARK, "Figure 6", "Which transformer to favor", caption, chart, None)


def _is_outside(member: Member) -> bool:
    """Whether a model is in no class: the guide shows classes, so the caption names it instead."""
    return member.how == UNKNOWN_CLASS.key


def _entries(front: FrontMembers, base_size: int, titles: Mapping[str, str]) -> list[GuideEntry]:
    """The families on a front, each once: the reader's by the titles of their cards, the paper's by the paper's."""
    if front.metric is None:
        named = {(member.how, member.name): member.family for member in front.members if member.how in GUIDE_CLASSES}
    else:
        named = {
            (member.how, titles.get(member.family, member.family)): member.family
            for member in front.members
            if not _is_outside(member)
        }
    return [
        GuideEntry(front.constraint, front.phase, how, family, title, base_size)
        for (how, title), family in named.items()
    ]


def _chart(lines: list[Suggestion]) -> alt.LayerChart:
    y_scale = alt.Scale(domain=[-0.5, len(lines) - 0.5], reverse=True, nice=False)
    x_scale = alt.Scale(domain=[0, 1], nice=False)

    def at(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", axis=None, scale=y_scale)

    def across(field: str) -> alt.X:
        return alt.X(f"{field}:Q", axis=None, scale=x_scale)

    def text(values: list[dict[str, Any]], style: str) -> alt.Chart:
        mark = alt.Chart(Rows(values)).mark_text(style=style, align="left", baseline="middle", limit=_LONGEST)
        return mark.encode(x=across("x"), y=at("y"), text="text:N")

    constraints = _middles([line.constraint for line in lines])
    phases = _middles([(line.constraint, line.phase) for line in lines])
    headings = [{"x": _CONSTRAINT, "y": y, "text": str(key).capitalize()} for key, y in constraints]
    branches = [{"x": _PHASE, "y": y, "text": key[1].capitalize()} for key, y in phases]
    middle_of = dict(constraints)
    links = [{"x": _PHASE - 3 * _LINK, "y": middle_of[key[0]], "x2": _PHASE - _LINK / 2, "y2": y} for key, y in phases]
    middle_of_phase = dict(phases)
    links += [
        {"x": _MODEL - 3 * _LINK, "y": middle_of_phase[line.constraint, line.phase], "x2": _MODEL - _LINK, "y2": y}
        for y, line in enumerate(lines)
    ]
    models = [
        {"x": _MODEL, "y": y, "text": line.name, "class": line.class_title, "models": line.models}
        for y, line in enumerate(lines)
    ]
    markers = (
        alt.Chart(Rows(models))
        .mark_point(size=55, fillOpacity=0.85)
        .encode(
            x=across("x"),
            y=at("y"),
            tooltip=[alt.Tooltip("text:N", title="Favor"), alt.Tooltip("models:N", title="Most accurate")],
            **class_encodings(line.class_title for line in lines),
        )
    )
    names = [{**model, "x": _MODEL + _LINK} for model in models]
    rules = alt.Chart(Rows(links)).mark_rule(style="link")
    return layered(
        rules.encode(x=across("x"), y=at("y"), x2="x2:Q", y2="y2:Q"),
        text(headings, "heading"),
        text(branches, "label"),
        markers,
        text(names, "label"),
    )


def _middles(keys: list[Any]) -> list[tuple[Any, float]]:
    """Each key once, with the middle of the lines that it stands at.

    >>> _middles(["a", "a", "b"])
    [('a', 0.5), ('b', 2.0)]
    """
    places: dict[Any, list[int]] = {}
    for line, key in enumerate(keys):
        places.setdefault(key, []).append(line)
    return [(key, sum(lines) / len(lines)) for key, lines in places.items()]
