"""A larger model or a larger image: what each gains in accuracy, and at what factor of cost (Figure 12)."""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from favor.analyze import model_or_image
from favor.analyze.reasons import undisturbed
from favor.analyze.trainings import unequal_lengths
from favor.errors import RequestError
from favor.report.figures.axes import quantity
from favor.report.figures.commands import to_fill
from favor.report.figures.evidence import Evidence, left_out_sentence, sources_sentence
from favor.report.figures.figure import BENCHMARK, Figure
from favor.report.figures.fronts import TRAINING_MEMORIES, TRAINING_TIMES, first_known
from favor.report.figures.theme import (
    FIRST_SERIES,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    SECOND_SERIES,
    Rows,
    layered,
    several_plots,
)

PAIRS = (("vit_ti16", "vit_s16"), ("vit_s16", "vit_b16"), ("focalnet_ti", "focalnet_s"), ("afno_ti16", "afno_s16"))
LARGER_IMAGE = 384
_MODEL, _IMAGE = "larger model", "larger image"


@dataclass(frozen=True)
class Step:
    """What one way of scaling a model up gains, in points of accuracy, and the factor of cost it takes."""

    start: str
    to: str
    way: str
    cost: str
    factor: float
    gain: float


@dataclass(frozen=True)
class ScalingSteps:
    """The steps by each cost, and how often the larger model gains more for a doubling of the cost.

    `disturbed` models are left out, each only by the costs of which its number was disturbed.
    """

    steps: tuple[Step, ...]
    comparisons: int
    model_wins: int
    disturbed: int = 0


def scaling_steps(evidence: Evidence, costs: Sequence[str], pairs: Sequence[tuple[str, str]] = PAIRS) -> ScalingSteps:
    """The steps of the pairs of models that are known at both image sizes."""
    steps: list[Step] = []
    comparisons = wins = 0
    base = evidence.base_size or 224
    names = {name for pair in pairs for name in pair}
    disturbed: set[str] = set()
    for cost in costs:
        known = evidence.rows([cost, "top1"])
        known = known[known["name"].isin(names)]
        rows = undisturbed(known, [cost])
        disturbed |= set(known["name"][~known.index.isin(rows.index)])
        for small, large in pairs:
            try:
                choice = model_or_image(rows, small, large, cost, img_size=base, larger_img_size=LARGER_IMAGE)
            except RequestError:
                continue
            comparisons += 1
            wins += choice.verdict == _MODEL
            for way, step in ((_MODEL, choice.larger_model), (_IMAGE, choice.larger_image)):
                steps.append(Step(small, step.to, way, cost, round(step.cost_factor, 3), round(step.gain, 3)))
    return ScalingSteps(tuple(steps), comparisons, wins, len(disturbed))


def scaling_figure(evidence: Evidence) -> Figure:
    """Figure 12."""
    identity = ("benchmark-model-or-image", BENCHMARK, "Figure 12", "A larger model or a larger image")
    time = first_known(evidence, TRAINING_TIMES, "top1")
    costs = ("throughput", time, "inference_memory", first_known(evidence, TRAINING_MEMORIES, "top1"))
    info = scaling_steps(evidence, costs)
    if not info.steps:
        names = " ".join(dict.fromkeys(name for pair in PAIRS for name in pair))
        commands = (
            f"favor measure {names} --phase both --study mine",
            f"favor measure {names} --phase both --img-size {LARGER_IMAGE} --study mine",
            f"favor finetune CHECKPOINT --recipe deit3-finetune --img-size {LARGER_IMAGE} --study mine",
        )
        needs = f"accuracies at two image sizes and costs at both of {names.replace(' ', ', ')}"
        missing = to_fill(needs, *commands) + left_out_sentence(info.disturbed)
        return Figure(*identity, "The two ways of scaling up.", None, missing)
    known = list(dict.fromkeys(step.cost for step in info.steps))
    rows = evidence.rows([known[0], "top1"])
    wins = f" The larger model gains more per doubling of cost in {info.model_wins} of {info.comparisons} comparisons."
    said = ("" if unequal_lengths(rows) else wins) + left_out_sentence(info.disturbed)
    caption = (
        f"From each model to the next larger one and to {LARGER_IMAGE} px images: accuracy gained against the factor "
        f"of cost.{said} {sources_sentence(rows, [known[0], 'top1'])}"
    )
    return Figure(*identity, caption, several_plots([_plot(info, cost) for cost in known]), None)


def _plot(info: ScalingSteps, cost: str) -> alt.LayerChart:
    steps = [step for step in info.steps if step.cost == cost]
    values = [
        {"start": step.start, "to": step.to, "way": step.way, "path": index, "factor": factor, "gain": gain}
        for index, step in enumerate(steps)
        for factor, gain in ((1.0, 0.0), (step.factor, step.gain))
    ]
    title = "Time per image" if cost == "throughput" else quantity(cost).title
    base = alt.Chart(Rows(values)).encode(
        x=alt.X("factor:Q", title="← Cost [times the smaller model's], lower is better", scale=alt.Scale(zero=False)),
        y=alt.Y("gain:Q", title="Accuracy gained [points], higher is better →"),
        color=alt.Color(
            "way:N",
            scale=alt.Scale(domain=[_MODEL, _IMAGE], range=[FIRST_SERIES, SECOND_SERIES]),
            legend=alt.Legend(title=None, orient="bottom"),
        ),
        detail="path:N",
    )
    ends = base.transform_filter("datum.gain != 0")
    lines = base.mark_line(strokeWidth=1.6)
    points = ends.mark_point(filled=True, size=55, opacity=1).encode(
        shape=alt.Shape("start:N", legend=alt.Legend(title="From", orient="bottom", columns=2)),
        tooltip=[
            alt.Tooltip("start:N", title="From"),
            alt.Tooltip("to:N", title="To"),
            alt.Tooltip("factor:Q", title="Factor of cost"),
            alt.Tooltip("gain:Q", title="Accuracy gained [points]"),
        ],
    )
    return layered(lines, points).properties(width=PANEL_WIDTH, height=PANEL_HEIGHT, title=title)
