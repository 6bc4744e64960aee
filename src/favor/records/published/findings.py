"""The papers' findings beyond single models: correlations, the memory formula, Pareto lists, advice."""

from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from favor.records.published.measurements import FAVOR
from favor.records.published.rows import rows
from favor.zoo.taxonomy import How

Constraint = Literal["speed", "memory"]
Phase = Literal["inference", "training"]
Kind = Literal["pearson", "spearman"]
Between = Literal["metrics", "datasets", "devices"]
USUAL_SIZE = 224


@dataclass(frozen=True)
class Correlation:
    """A printed correlation coefficient; `x` and `y` are metrics (or one over one), datasets or devices."""

    kind: Kind
    between: Between
    x: str
    y: str
    value: float
    place: str
    note: str
    paper: str = FAVOR


@dataclass(frozen=True)
class LinearFit:
    """A printed line `y = slope * x + intercept`; x and y are metrics in the stated multiples of their units."""

    x: str
    x_unit: str
    y: str
    y_unit: str
    slope: float
    intercept: float
    correlation: float
    conditions: str
    place: str
    paper: str = FAVOR


@dataclass(frozen=True)
class MeanGain:
    """The mean of Table 1's differences in points: as printed in the text, and computed from its rows."""

    printed: float
    from_rows: float
    pairs: int
    place: str = "Section 5.1"
    paper: str = FAVOR


@dataclass(frozen=True)
class OriginalAccuracy:
    """A row of Table 1: a model's accuracy on ImageNet-1k in its own paper, and how it was trained there.

    >>> str(OriginalAccuracy("cvt_13", "CvT-13", 83.3, 384, False, False))
    'CvT-13 (384 px)'
    """

    name: str
    row: str
    top1: float
    img_size: int
    distillation: bool
    ema: bool

    def __str__(self) -> str:
        marks = [f"{self.img_size} px"] if self.img_size != USUAL_SIZE else []
        marks += [mark for mark, given in (("distilled", self.distillation), ("EMA", self.ema)) if given]
        return f"{self.row} ({', '.join(marks)})" if marks else self.row


@dataclass(frozen=True)
class ParetoOptimal:
    """A family that Table 7 lists as Pareto optimal with accuracy, for a constraint in a phase."""

    how: str
    constraint: Constraint
    phase: Phase
    title: str
    family: str
    img_size: int
    place: str = "Table 7"
    paper: str = FAVOR


@dataclass(frozen=True)
class ClassSize:
    """How many architectures of a class of the taxonomy Table 7 counts."""

    how: str
    architectures: int
    place: str = "Table 7"
    paper: str = FAVOR


@dataclass(frozen=True)
class Advice:
    """A recommendation of the text; a constraint or phase of None means any."""

    constraint: Constraint | None
    phase: Phase | None
    how: tuple[str, ...]
    text: str
    place: str
    paper: str = FAVOR


@dataclass(frozen=True)
class Variability:
    """The spread of a metric over runs of the ViT baseline; the paper does not say which size."""

    metric: str
    low: float
    high: float
    std: float
    range_percent: float
    std_percent: float
    runs: int = 8
    family: str = "vit"
    place: str = "A.4"
    paper: str = FAVOR


VRAM_FORMULA = LinearFit(
    *("ops_mixed", "G", "train_memory", "GB"),
    slope=25.43,
    intercept=25.50,
    correlation=0.85,
    conditions="batch size 2048, mixed precision, 224 and 384 px",
    place="D.9",
)

_CONSTRAINTS: dict[str, Constraint] = {word: word for word in get_args(Constraint)}
_PHASES: dict[str, Phase] = {word: word for word in get_args(Phase)}
_KINDS: dict[str, Kind] = {word: word for word in get_args(Kind)}
_BETWEEN: dict[str, Between] = {word: word for word in get_args(Between)}

# The flow chart is a picture: its caption names these classes, and D.10 says that it highlights models of Table 7.
GUIDE_CLASSES = ("baseline", "sparse", "hybrid", "shuffling", "removal", "merging", "summary")


@cache
def correlations() -> tuple[Correlation, ...]:
    """All printed correlations (Tables 2, 5 and 6, and the text), contradictory ones side by side."""
    return tuple(
        Correlation(
            kind=_KINDS[row["kind"]],
            between=_BETWEEN[row["between"]],
            x=row["x"],
            y=row["y"],
            value=float(row["value"]),
            place=row["place"],
            note=row["note"],
        )
        for row in rows("favor_correlations.csv")
    )


@cache
def pareto_optimal() -> tuple[ParetoOptimal, ...]:
    """Table 7: the Pareto optimal families for speed and memory, at inference and in training."""
    return tuple(
        ParetoOptimal(
            how=_class_key(row["class"]),
            constraint=_CONSTRAINTS[row["constraint"]],
            phase=_PHASES[row["phase"]],
            title=row["title"],
            family=row["family"],
            img_size=int(row["img_size"]),
        )
        for row in rows("favor_table7.csv")
    )


@cache
def class_sizes() -> tuple[ClassSize, ...]:
    """Table 7: the number of architectures in each class."""
    return tuple(
        ClassSize(_class_key(row["class"]), int(row["architectures"])) for row in rows("favor_table7_classes.csv")
    )


def guide(constraint: Constraint, phase: Phase) -> tuple[ParetoOptimal, ...]:
    """Figure 6 as far as the text gives it: the entries of Table 7 in the classes that the figure's caption names."""
    return tuple(
        entry
        for entry in pareto_optimal()
        if (entry.constraint, entry.phase) == (constraint, phase) and entry.how in GUIDE_CLASSES
    )


@cache
def advice() -> tuple[Advice, ...]:
    """What the text recommends, for which constraint and phase."""
    return tuple(
        Advice(
            constraint=_CONSTRAINTS[row["constraint"]] if row["constraint"] else None,
            phase=_PHASES[row["phase"]] if row["phase"] else None,
            how=tuple(row["classes"].split()),
            text=row["text"],
            place=row["place"],
        )
        for row in rows("favor_advice.csv")
    )


@cache
def original_accuracies() -> tuple[OriginalAccuracy, ...]:
    """The accuracies that Table 1 quotes from the models' own papers."""
    return tuple(
        OriginalAccuracy(
            name=row["name"],
            row=row["row"],
            top1=float(row["original_top1"]),
            img_size=int(row["original_img_size"]),
            distillation=row["original_distillation"] == "yes",
            ema=row["original_ema"] == "yes",
        )
        for row in rows("favor_table1.csv")
    )


@cache
def mean_gain() -> MeanGain:
    """How much higher the new pipeline's accuracies are than the original papers', as printed and from Table 1."""
    gains = [float(row["top1"]) - float(row["original_top1"]) for row in rows("favor_table1.csv") if row["top1"]]
    return MeanGain(printed=0.85, from_rows=sum(gains) / len(gains), pairs=len(gains))


@cache
def variability() -> tuple[Variability, ...]:
    """A.4: how much the metrics vary over eight runs."""
    return tuple(
        Variability(
            metric=row["metric"],
            low=float(row["low"]),
            high=float(row["high"]),
            std=float(row["std"]),
            range_percent=float(row["range_percent"]),
            std_percent=float(row["std_percent"]),
        )
        for row in rows("favor_variability.csv")
    )


def _class_key(title: str) -> str:
    return next(how.key for how in How if how.title == title)
