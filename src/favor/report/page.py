"""The page: one self-contained HTML file in which only its own script can run."""

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from favor.analyze.comparison import DEFAULT_SCOPE, Scope
from favor.records import Gathered
from favor.report.class_style import CLASS_STYLES, UNKNOWN_CLASS
from favor.report.data import PageData, as_json, escaped, page_data
from favor.report.effects import effect_tables
from favor.report.figure_specs import chart_library, chart_themes, drawings_of, has_chart, packed
from favor.report.load import load_sections
from favor.report.method import method_of
from favor.report.progress import Track, unseen
from favor.report.runtimes import runtimes_sections
from favor.report.study_answer import StudyAnswer
from favor.version import __version__

# In the order of their dependencies.
_SCRIPTS = (
    *("dom", "units", "records", "pareto", "decision", "state", "scales"),
    *("explorer", "controls", "plot", "pointing", "comparison", "favor", "table", "figures", "downloads", "main"),
)


def page_of(
    gathered: Gathered, scope: Scope = DEFAULT_SCOPE, track: Track = unseen, answer: StudyAnswer | None = None
) -> str:
    """The page of everything that was gathered, with the answer of the study where one has ended."""
    # Selecting rows is faster with texts as Python objects than as Arrow's.
    texts = {name: object for name, kind in gathered.table.dtypes.items() if kind == "str"}
    gathered = replace(gathered, table=gathered.table.astype(texts).copy())  # in few blocks, which is faster
    figures = drawings_of(gathered.table, scope, track)
    loads = load_sections(gathered.own)
    library = chart_library() if loads or has_chart(figures) else ""
    data = page_data(gathered, scope, track)
    style, script = _style(), _script()
    # The template escapes every value, except for a few that are made here and contain no markup from records.
    environment = Environment(autoescape=True, undefined=StrictUndefined, loader=FunctionLoader(asset))
    return environment.get_template("template.html").render(
        policy=_policy(style, [script, library]),
        version=__version__,
        title=_title(gathered),
        summary=_summary(gathered, data),
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        data=Markup(as_json(data)),  # noqa: S704
        figures=figures,
        answer=answer,
        effects=effect_tables(gathered.table, scope),
        loads=loads,
        runtimes=runtimes_sections(gathered.own),
        themes=Markup(escaped(chart_themes())),  # noqa: S704
        vega=packed(library) if library else None,
        method=method_of(gathered),
    )


def asset(name: str) -> str:
    """The text of a file beside this module's."""
    return files("favor.report").joinpath("assets", name).read_text(encoding="utf-8")


def _style() -> str:
    classes = (*CLASS_STYLES.values(), UNKNOWN_CLASS)
    return asset("page.css") + "".join(f".how-{style.key} {{ color: {style.color}; }}\n" for style in classes)


def _script() -> str:
    """The scripts as one, in a scope of their own."""
    parts = "\n".join(asset(f"js/{name}.js") for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();'


def _policy(style: str, scripts: Iterable[str]) -> str:
    """The content security policy: the browser runs exactly these scripts and styles, and contacts no server."""
    allowed = " ".join(hash_of(script) for script in scripts if script)
    # The only images allowed are those that the page makes itself: a plot that is converted to PNG.
    only = f"script-src {allowed}; style-src {hash_of(style)}; img-src blob:"
    return f"default-src 'none'; {only}; base-uri 'none'; form-action 'none'"


def hash_of(text: str) -> str:
    """A text as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _title(gathered: Gathered) -> str:
    return f"A report on {', '.join(gathered.paths)}" if gathered.paths else "The papers' numbers and our counts"


def _summary(gathered: Gathered, data: PageData) -> str:
    """What the page holds, in a sentence or two."""
    models = len(set(data.views.models.name))
    measured = {record.name for record in gathered.own if record.source == "measured" and record.status == "ok"}
    imported = {record.name for record in gathered.own if record.source == "imported"} - measured
    own = [f"{len(names)} {how}" for names, how in ((measured, "measured by you"), (imported, "imported")) if names]
    text = f"{models} models have numbers here"
    if own:
        text += f": {' and '.join(own)}, the others published or counted by favor"
    if not gathered.paths:
        text += ", published or counted by favor. Your machine has no measurements yet: `favor report STUDY` adds them"
    return f"{text}."
