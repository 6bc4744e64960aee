"""Results as the table of a paper, in Markdown or LaTeX: the best in bold, intervals, flags as footnotes."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from favor.analyze.flags import is_disturbed, marked
from favor.analyze.origins import shown_source
from favor.analyze.selection import known_of
from favor.analyze.setting import column_of
from favor.analyze.trainings import unequal_lengths
from favor.metrics import METRICS, QUALITIES
from favor.report.figures.axes import axis_of
from favor.text import in_markdown

METRICS_OF_A_PAPER = (
    *("top1", "params", "macs", "throughput", "latency_p50", "inference_memory"),
    *("train_step_time", "train_memory"),
)
Row = Mapping[Hashable, Any]
_ARROWS = {"higher": "↑", "lower": "↓", "neither": ""}
_LATEX_ARROWS = {"higher": r"$\uparrow$", "lower": r"$\downarrow$", "neither": ""}
_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)


@dataclass(frozen=True)
class Column:
    """A metric with the unit of its cells."""

    metric: str
    title: str
    unit: str


@dataclass(frozen=True)
class Cell:
    """A number, half its 95 % interval (`?` if that is unknown, None if exact), and the numbers of its footnotes."""

    value: str
    plus_minus: str | None = None
    is_best: bool = False
    notes: tuple[int, ...] = ()


@dataclass(frozen=True)
class ResultsTable:
    """A table of results: one row per model, an empty cell where a number is unknown."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]
    notes: tuple[str, ...]

    def to_markdown(self) -> str:
        """The table in Markdown, as GitHub and Jupyter show it."""
        heads = [f"{c.title} [{c.unit}] {_ARROWS[METRICS[c.metric].better]}".rstrip() for c in self.columns]
        lines = [_line(["Model", *heads]), _line([":---", *("---:" for _ in self.columns)])]
        lines += [_line([in_markdown(name), *map(_markdown, cells)]) for name, cells in self.rows]
        lines += ["", *(f"{n}. {in_markdown(note)}" for n, note in enumerate(self.notes, 1))] if self.notes else []
        return "\n".join(lines) + "\n"

    def to_latex(self) -> str:
        """The table in LaTeX, with the rules of the package booktabs."""
        units = [f"{c.title} [{c.unit}]".translate(_LATEX) for c in self.columns]
        heads = [
            f"{u} {_LATEX_ARROWS[METRICS[c.metric].better]}".rstrip() for u, c in zip(units, self.columns, strict=True)
        ]
        lines = [r"\begin{tabular}{l" + "r" * len(self.columns) + "}", r"\toprule"]
        lines += [" & ".join(["Model", *heads]) + r" \\", r"\midrule"]
        lines += [" & ".join([name.translate(_LATEX), *map(_latex, cells)]) + r" \\" for name, cells in self.rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
        notes = (f"$^{{{n}}}$ {note.translate(_LATEX)}" for n, note in enumerate(self.notes, 1))
        return "\n".join([*lines, *(rf"\\ {note}" for note in notes)]) + "\n"


def results_table(rows: pd.DataFrame, metrics: Sequence[str]) -> ResultsTable:
    """The table of assembled rows (see `favor.analyze.Comparison`), of the metrics that have a number."""
    known = known_of(rows, metrics)
    rows = rows[rows[known].notna().any(axis=1)]
    axes = {metric: axis_of(metric, rows[metric]) for metric in known}
    columns = tuple(Column(metric, axes[metric].title, axes[metric].unit or "1") for metric in known)
    unequal = unequal_lengths(rows)
    uncompared = set(QUALITIES) if unequal else set()
    best = {metric: None if metric in uncompared else _best(rows, metric) for metric in known}
    pipelines = {metric: rows.get(f"{metric}_pipeline") for metric in known}
    mixed = {metric for metric, column in pipelines.items() if column is not None and column.nunique() > 1}
    notes: dict[str, int] = {}
    made = []
    for row in rows.to_dict("records"):
        cells: list[Cell | None] = []
        for metric in known:
            if pd.isna(row[metric]):
                cells.append(None)
                continue
            texts = [*_notes_on(row, metric), *([f"pipeline {row[f'{metric}_pipeline']}"] if metric in mixed else [])]
            texts += [str(unequal)] if metric in uncompared else []
            numbers = tuple(notes.setdefault(note, len(notes) + 1) for note in texts)
            value, half = _rounded(row, metric, axes[metric].factor)
            cells.append(Cell(value, half, row[metric] == best[metric], numbers))
        made.append((_name(row, rows), tuple(cells)))
    return ResultsTable(columns, tuple(made), tuple(notes))


def _name(row: Row, rows: pd.DataFrame) -> str:
    """The model, with its image size if the table has several."""
    several = rows["img_size"].nunique() > 1 and not pd.isna(row["img_size"])
    return f"{row['name']} ({row['img_size']:g} px)" if several else str(row["name"])


def _best(rows: pd.DataFrame, metric: str) -> float | None:
    """The best number; None if it was disturbed, since then it is unknown which one is best."""
    better, values = METRICS[metric].better, rows[metric]
    if better == "neither" or values.nunique() < 2:
        return None
    best = float(values.max() if better == "higher" else values.min())
    flags = column_of(rows, f"{metric}_flags")[values == best]
    return None if marked(flags, is_disturbed).any() else best


def _notes_on(row: Row, metric: str) -> Iterable[str]:
    source, low, high, flags = (row.get(f"{metric}_{part}") for part in ("source", "low", "high", "flags"))
    source = shown_source(metric, source, low, high)
    if isinstance(source, str) and source != "measured":
        yield source
    if isinstance(flags, str):
        yield f"flagged: {flags}"
    weights = row.get(f"{metric}_published_weights")
    if isinstance(weights, str):
        yield f"fine-tuned from {weights}, with its preprocessing"
    overrides = row.get(f"{metric}_overrides")
    if isinstance(overrides, str):
        yield f"trained with {overrides} (override of the study)"
    unfinished = row.get(f"{metric}_unfinished")
    if unfinished is not None and not pd.isna(unfinished):
        yield f"unfinished, after {unfinished:g} epoch{'s' * (unfinished != 1)}"


def _rounded(row: Row, metric: str, factor: float) -> tuple[str, str | None]:
    """A value with as many digits as its interval supports, and half of the interval's width.

    >>> _rounded({"top1": 82.5431, "top1_low": 82.31, "top1_high": 82.79}, "top1", 1.0)
    ('82.54', '0.24')
    >>> _rounded({"params": 22_059_496.0}, "params", 1e6), _rounded({"throughput": 12.0}, "throughput", 1.0)
    (('22.06', None), ('12', '?'))
    """
    value = float(row[metric]) / factor
    low, high = (row.get(f"{metric}_{end}") for end in ("low", "high"))
    if low is None or high is None or pd.isna(low) or pd.isna(high):
        return f"{value:.4g}", None if METRICS[metric].exact else "?"
    half = (float(high) - float(low)) / 2 / factor
    if not 0 < half < math.inf:  # of numbers at the ends of the range of floats
        return f"{value:.4g}", None
    digits = max(0, 1 - math.floor(math.log10(half)))
    return f"{value:.{digits}f}", f"{half:.{digits}f}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(cell: Cell | None) -> str:
    if cell is None:
        return ""
    text = cell.value if cell.plus_minus is None else f"{cell.value} ± {cell.plus_minus}"
    text = f"**{text}**" if cell.is_best else text
    return text + (f" <sup>{', '.join(map(str, cell.notes))}</sup>" if cell.notes else "")


def _latex(cell: Cell | None) -> str:
    if cell is None:
        return ""
    text = cell.value if cell.plus_minus is None else rf"{cell.value} $\pm$ {cell.plus_minus}"
    text = rf"\textbf{{{text}}}" if cell.is_best else text
    return text + (f"$^{{{','.join(map(str, cell.notes))}}}$" if cell.notes else "")
