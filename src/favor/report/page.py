"""The page: one self-contained HTML file in which only its own script can run."""

import base64
import hashlib
from collections.abc import Iterable
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from favor.analyze.comparison import DEFAULT_SCOPE, Scope
from favor.records import Gathered
from favor.report.class_style import CLASS_STYLES, UNKNOWN_CLASS
from favor.report.data import PageData, as_json, escaped, page_data
from favor.report.figure_specs import chart_library, chart_themes, drawings_of, has_chart, packed
from favor.report.method import method_of
from favor.report.track import Track, unseen
from favor.version import __version__

# In the order of their dependencies.
_SCRIPTS = (
    *("dom", "units", "records", "pareto", "decision", "state", "scales"),
    *("explorer", "controls", "plot", "pointing", "comparison", "favor", "table", "figures", "main"),
)


def page_of(gathered: Gathered, scope: Scope = DEFAULT_SCOPE, track: Track = unseen) -> str:
    """The page of everything that was gathered."""
    figures = drawings_of(gathered.table, scope, track)
    library = chart_library() if has_chart(figures) else ""
    data = page_data(gathered, scope, track)
    style, script = _style(), _script()
    # Every value is escaped where it is put in, but for the few that are made here and hold no record's text as markup.
    environment = Environment(autoescape=True, undefined=StrictUndefined, loader=FunctionLoader(_asset))
    return environment.get_template("template.html").render(
        policy=_policy(style, [script, library]),
        version=__version__,
        title=_title(gathered),
        summary=_summary(gathered, data),
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        data=Markup(as_json(data)),  # noqa: S704
        figures=figures,
        themes=Markup(escaped(chart_themes())),  # noqa: S704
        vega=packed(library) if library else None,
        method=method_of(gathered),
    )


def _asset(name: str) -> str:
    return files("favor.report").joinpath("assets", name).read_text(encoding="utf-8")


def _style() -> str:
    classes = (*CLASS_STYLES.values(), UNKNOWN_CLASS)
    return _asset("page.css") + "".join(f".how-{style.key} {{ color: {style.colour}; }}\n" for style in classes)


def _script() -> str:
    """The scripts as one, in a scope of their own."""
    parts = "\n".join(_asset(f"js/{name}.js") for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();'


def _policy(style: str, scripts: Iterable[str]) -> str:
    """What the browser may do: run and style with exactly these texts, and reach nobody."""
    allowed = " ".join(_hash(script) for script in scripts if script)
    return f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _title(gathered: Gathered) -> str:
    return f"A report on {', '.join(gathered.paths)}" if gathered.paths else "The papers' numbers and our counts"


def _summary(gathered: Gathered, data: PageData) -> str:
    """What the page holds, in a sentence or two."""
    models = len(set(data.views.models.name))
    measured = {record.name for record in gathered.own if record.source == "measured" and record.status == "ok"}
    text = f"{models} models"
    if measured:
        text += f", {len(measured)} of them measured by you"
    if not gathered.paths:
        text += "; no measurements of your machine yet: name a study to add them"
    return f"{text}."
