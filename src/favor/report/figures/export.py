"""Figures as files for papers, drawn by vl-convert without a browser."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd

from favor.analyze.comparison import DEFAULT_SCOPE, Scope
from favor.errors import RequestError, WorkError, unknown_name
from favor.report.figures.figure import Figure
from favor.report.figures.theme import theme
from favor.report.progress import Track, unseen
from favor.text import printable

Format = Literal["pdf", "svg", "png"]
FORMATS: tuple[str, ...] = get_args(Format)

WIDTH = 520  # of a single plot, in points: a figure of a text's full width
_COLUMNS = 2
_PNG_SCALE = 2.0


def export(
    table: pd.DataFrame,
    folder: Path,
    format: str,  # noqa: A002
    scope: Scope = DEFAULT_SCOPE,
    track: Track = unseen,
) -> list[Path]:
    """Write every figure that the table can fill into the folder as `<id>.<format>`, on white; the files written."""
    from favor.report.figures import all_figures

    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS, f"choose from {', '.join(FORMATS)}")
    drawable = [figure for figure in all_figures(table, scope, track) if figure.chart is not None]
    if not drawable:
        raise RequestError("no figure can be drawn: the records hold no numbers that any of them shows")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"{folder}: cannot be made: {error.strerror}") from error
    return [_write(figure, folder / f"{figure.id}.{format}", format) for figure in track(drawable, "files")]


def print_spec(figure: Figure) -> dict[str, Any]:
    """The Vega-Lite specification of a figure for print: fixed widths, plots side by side, the light theme on white."""
    if figure.chart is None:
        raise ValueError(f"{figure.id} has no chart")
    # NaN is not JSON; Vega leaves null out
    spec = _printable(json.loads(figure.chart.to_json(), parse_constant=lambda _: None))
    if spec.get("width") == "container":
        spec["width"] = WIDTH
    if "concat" in spec:
        spec["columns"] = _COLUMNS
    return spec | {"config": theme(dark=False), "background": "white"}


def _printable(value: Any) -> Any:
    """A specification whose texts have no control characters: the renderer aborts the process on them."""
    if isinstance(value, dict):
        return {printable(key): _printable(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_printable(one) for one in value]
    return printable(value) if isinstance(value, str) else value


def _write(figure: Figure, path: Path, format: str) -> Path:  # noqa: A002
    import vl_convert

    spec = json.dumps(print_spec(figure))
    version = _vegalite_version(spec)
    draw: dict[str, Callable[[], bytes]] = {
        "pdf": lambda: vl_convert.vegalite_to_pdf(spec, vl_version=version),
        "svg": lambda: vl_convert.vegalite_to_svg(spec, vl_version=version).encode(),
        "png": lambda: vl_convert.vegalite_to_png(spec, vl_version=version, scale=_PNG_SCALE),
    }
    content = draw[format]()
    try:
        path.write_bytes(content)
    except OSError as error:
        raise WorkError(f"{path}: cannot be written: {error.strerror}") from error
    return path


def _vegalite_version(spec: str) -> str:
    """The version that the specification names, as vl-convert wants it: 6.4 of `.../v6.4.1.json`."""
    schema = str(json.loads(spec)["$schema"])
    return ".".join(schema.rsplit("/v", 1)[1].split(".")[:2])
