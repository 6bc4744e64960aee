"""The front of throughput and accuracy on each dataset (Figure 8)."""

import pandas as pd

from favor.analyze.comparison import DEFAULT_SCOPE, Scope
from favor.report.figures.commands import QUICK, to_fill
from favor.report.figures.evidence import LEAST_TO_DRAW, datasets_of, evidence_of, sources_sentence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.scatter import marks_sentence
from favor.report.figures.trade_off import TradeOff, trade_off, trade_off_panels

MOST_DATASETS = 6


def datasets_figure(table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE) -> Figure:
    """Figure 8: every dataset whose accuracies go with throughputs."""
    identity = ("benchmark-data-sets", BENCHMARK, "Figure 8", "The front on each dataset")
    fronts: dict[str, TradeOff] = {}
    drawn: list[str] = []
    for dataset in datasets_of(table)[:MOST_DATASETS]:
        trained = table[(table["dataset"] == dataset) & table["top1"].notna()]
        of_dataset = table[table["name"].isin(trained["name"])]
        evidence = evidence_of(of_dataset, ["throughput", "top1"], dataset, scope)
        rows = evidence.rows(["throughput", "top1"])
        if len(rows) >= LEAST_TO_DRAW:
            fronts[dataset] = trade_off(rows, "throughput", base_size=evidence.base_size, flags=evidence.flags)
            drawn.append(f"{dataset}: {sources_sentence(rows, ['top1']).removeprefix('Sources: ')}")
    if not fronts:
        needs = "throughput of two or more models that have an accuracy"
        return Figure(*identity, "The front on each dataset.", None, to_fill(needs, QUICK))
    marks = marks_sentence([info.scatter for info in fronts.values()])
    caption = f"Pareto fronts (dotted) of throughput and accuracy.{marks} Sources: {' '.join(drawn)}"
    return Figure(*identity, caption, trade_off_panels(fronts), None)
