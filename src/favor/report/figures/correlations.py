"""Correlations between costs, and between datasets (Tables 2 and 5)."""

from dataclasses import replace

import pandas as pd

from favor.analyze import correlate, correlate_datasets
from favor.analyze.comparison import DEFAULT_SCOPE, Scope
from favor.analyze.setting import column_of
from favor.errors import RequestError
from favor.records.published import correlations
from favor.report.figures.axes import INFERENCE_TIME
from favor.report.figures.commands import FULL, LAPTOP, to_fill
from favor.report.figures.evidence import Evidence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.fronts import TRAINING_MEMORIES, TRAINING_TIMES, first_known
from favor.report.figures.heatmap import Cell, heatmap
from favor.report.figures.theme import PANEL_WIDTH, one_plot, several_plots

_LEAST = 5
_CELL_HEIGHT = 42
# The paper's order, with names short enough for a grid.
_COSTS = {
    "ops_mixed": "Operations",
    "params": "Parameters",
    "finetune_time": "Fine-tuning time",
    "train_memory": "Training memory",
    INFERENCE_TIME.name: "Inference time",
    "inference_memory": "Inference memory",
}


def published_costs() -> list[Cell]:
    """What the paper's Table 2 prints."""
    order = list(_COSTS)
    printed = [entry for entry in correlations() if entry.between == "metrics" and entry.place == "Table 2"]
    cells = []
    for correlation in printed:
        column, row = sorted((correlation.x, correlation.y), key=order.index)
        cells.append(Cell(_COSTS[row], _COSTS[column], correlation.value, "Pearson, the paper"))
    return cells


def own_costs(evidence: Evidence) -> list[Cell]:
    """The same for the records: pairs of costs that five or more points have in one setting."""
    measured_as = {"finetune_time": TRAINING_TIMES, "train_memory": TRAINING_MEMORIES}
    stands_for = {name: first_known(evidence, measured_as.get(name, (name,))) for name in _COSTS}
    cells = []
    names = list(_COSTS)
    for i, x in enumerate(names):
        for y in names[i + 1 :]:
            rows = evidence.rows([stands_for[x], stands_for[y]])
            if len(rows) < _LEAST:
                continue
            pair = correlate(rows, [stands_for[x], stands_for[y]], draws=0).pair(stands_for[x], stands_for[y])
            if pair.pearson is not None:
                cells.append(Cell(_COSTS[y], _COSTS[x], pair.pearson, f"Pearson, your records, {pair.n} points"))
    return cells


def cost_correlation_figure(evidence: Evidence) -> Figure:
    """Table 2: the paper's and the reader's own, side by side."""
    paper, own = published_costs(), own_costs(evidence)
    yours = (
        f"your records ({len(own)} of 15 pairs of costs have five or more points)"
        if own
        else f"no records of yours yet, because no two costs are known for five models; run {FULL}"
    )
    caption = f"Pearson's correlation between costs. Sources: published in the paper's Table 2; {yours}."
    identity = ("benchmark-cost-correlation", BENCHMARK, "Table 2", "Correlation between costs")
    if not own:
        return Figure(*identity, caption, one_plot(heatmap(_in_order(paper)), height=_height(paper)), None)
    titled = {"The paper, on an A100": paper, "Your records": own}
    plots = (
        heatmap(_in_order(cells)).properties(width=PANEL_WIDTH, height=_height(cells), title=title)
        for title, cells in titled.items()
    )
    return Figure(*identity, caption, several_plots(plots, beside=150), None)


def _height(cells: list[Cell]) -> int:
    return _CELL_HEIGHT * len({cell.row for cell in cells})


def _in_order(cells: list[Cell]) -> list[Cell]:
    """The cells such that rows and columns first occur in the paper's order."""
    order = list(_COSTS.values())
    return sorted(cells, key=lambda cell: (order.index(cell.row), order.index(cell.column)))


def dataset_correlation_figure(table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE) -> Figure:
    """Table 5, last rows: Pearson's correlation below the diagonal, Spearman's above, between datasets' accuracies."""
    identity = ("benchmark-data-set-correlation", BENCHMARK, "Table 5", "Correlation of accuracy between datasets")
    # For a pipeline that was not run, the figure shows other accuracies, like the other figures.
    ran = (column_of(table, "top1").notna() & (column_of(table, "pipeline") == scope.pipeline)).any()
    try:
        result = correlate_datasets(table, scope if ran else replace(scope, pipeline=None), draws=0)
    except RequestError:
        result = None
    cells = []
    for pair in result.pairs if result else ():
        if pair.pearson is not None and pair.spearman is not None and pair.n >= _LEAST:
            cells.append(Cell(pair.y, pair.x, pair.pearson, f"Pearson, {pair.n} models"))
            cells.append(Cell(pair.x, pair.y, pair.spearman, f"Spearman, {pair.n} models"))
    unequal = "; ".join(result.unequal) if result else ""
    if unequal and not cells:
        return Figure(*identity, "Correlation between datasets.", None, f"Not drawn: {unequal}.")
    if result is None or not cells:
        missing = to_fill(f"accuracies of {_LEAST} or more models on the same two datasets", LAPTOP)
        return Figure(*identity, "Correlation between datasets.", None, missing)
    known = table.loc[table["top1"].notna(), "source"].unique()
    sources = result.source or " and ".join(str(name) for name in known)
    caption = (
        "Pearson's correlation below the diagonal, Spearman's above, over models trained alike. "
        f"Sources: accuracies {sources}.{f' Left out: {unequal}.' if unequal else ''}"
    )
    chart = one_plot(heatmap(cells), height=_height(cells))
    return Figure(*identity, caption, chart, None)
