"""The benchmark's Pareto fronts of accuracy and a cost: speed, training time, memory, parameters."""

from collections.abc import Collection
from dataclasses import dataclass

from favor.records.published import pareto_optimal
from favor.report.figures.axes import quantity
from favor.report.figures.commands import FULL, QUICK, to_fill
from favor.report.figures.evidence import LEAST_TO_DRAW, Evidence, sources_sentence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.theme import one_plot
from favor.report.figures.trade_off import TradeOff, trade_off, trade_off_layers
from favor.text import first_few

_MOST_NAMED = 8
# The whole fine-tuning where it was done, else what an epoch takes, which can be measured in a minute.
TRAINING_TIMES = ("finetune_time", "train_hours_per_epoch")
# The paper's batch of 2048, else the batch that was run.
TRAINING_MEMORIES = ("train_memory_reference_batch", "train_memory")


@dataclass(frozen=True)
class FrontFigure:
    """The front that a figure shows: the cost (the first known one of those named), and the command that measures it.

    `published` is the front of the paper's Table 7 that it can be held against.
    """

    id: str
    source: str
    title: str
    costs: tuple[str, ...]
    command: str
    published: tuple[str, str] | None = None


FRONT_FIGURES = (
    FrontFigure("throughput", "Figure 1", "Throughput and accuracy", ("throughput",), QUICK, ("speed", "inference")),
    FrontFigure(
        "training-time",
        "Figures 4 and 18",
        "Fine-tuning time and accuracy",
        TRAINING_TIMES,
        FULL,
        ("speed", "training"),
    ),
    FrontFigure(
        "training-memory",
        "Figures 5 (left) and 21",
        "Training memory and accuracy",
        TRAINING_MEMORIES,
        FULL,
        ("memory", "training"),
    ),
    FrontFigure(
        "inference-memory",
        "Figure 5 (right)",
        "Inference memory and accuracy",
        ("inference_memory",),
        QUICK,
        ("memory", "inference"),
    ),
    FrontFigure("parameters", "Figure 16", "Parameters and accuracy", ("params",), QUICK),
)


def first_known(evidence: Evidence, costs: tuple[str, ...], *others: str) -> str:
    """The first of several costs that enough models have together with the other metrics; the last where none is."""
    return next((cost for cost in costs if len(evidence.rows([cost, *others])) >= LEAST_TO_DRAW), costs[-1])


def front_figure(evidence: Evidence, figure: FrontFigure) -> Figure:
    """One of the benchmark's fronts."""
    cost = first_known(evidence, figure.costs, "top1")
    rows = evidence.rows([cost, "top1"])
    identity = (f"benchmark-{figure.id}", BENCHMARK, figure.source, figure.title)
    if len(rows) < LEAST_TO_DRAW:
        wanted = " or ".join(quantity(name).title.lower() for name in figure.costs)
        needs = f"{wanted} and an accuracy of two or more models"
        return Figure(*identity, "The Pareto front of a cost and accuracy.", None, to_fill(needs, figure.command))
    info = trade_off(rows, cost, base_size=evidence.base_size, flags=evidence.flags)
    members = {corner.name for corner in info.front}
    own = set(rows.loc[rows["name"].isin(members), "family"])
    published = None if info.unequal else figure.published
    paper = "" if published is None else f"{against_the_paper(published, own, set(rows['family']))} "
    caption = f"{front_sentences(info)} {paper}{sources_sentence(rows, [cost, 'top1'])}"
    return Figure(*identity, caption, one_plot(trade_off_layers(info)), None)


def against_the_paper(front: tuple[str, str], on_front: Collection[str], known: Collection[str]) -> str:
    """How a front compares with the paper's: which of its families are on both, on the paper's alone, or not known.

    >>> against_the_paper(("memory", "training"), {"tokenlearner"}, {"tokenlearner"})[:50]
    "The paper's front (Table 7, on an A100) has 9 fami"
    """
    paper = {entry.family: entry.title for entry in pareto_optimal() if (entry.constraint, entry.phase) == front}
    groups = {
        "also on yours": [title for family, title in paper.items() if family in on_front],
        "not on yours": [title for family, title in paper.items() if family in known and family not in on_front],
        "without numbers here": [title for family, title in paper.items() if family not in known],
    }
    sentence = "; ".join(f"{what}: {', '.join(titles)}" for what, titles in groups.items() if titles)
    return f"The paper's front (Table 7, on an A100) has {len(paper)} families. {sentence[:1].upper()}{sentence[1:]}."


def front_sentences(info: TradeOff) -> str:
    """The figure in words: which models are on the front, what the other front is, and which models are on neither.

    The number of models is that of names; a model at two image sizes is one model.
    """
    points = info.scatter.points
    members = [corner.name for corner in info.front]
    said = [
        f"{len(members)} of {len(points)} points are on the Pareto front (dotted): {first_few(members, _MOST_NAMED)}."
        if not info.unequal
        else "No front is drawn, because the accuracies cannot be compared."
    ]
    if info.high_resolution:
        said.append(f"Dashed: the front of models above {info.scatter.base_size} px only.")
    flagged = sum(point.flag is not None for point in points)
    if flagged:
        said.append(
            f"Faint: {flagged} whose published accuracy is from another configuration; they do not count for the front."
        )
    return " ".join(said) + info.scatter.marks_sentence()
