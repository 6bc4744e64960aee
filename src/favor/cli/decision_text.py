"""Decisions on a terminal: the tables and sentences of `favor recommend`, `pareto`, `compare` and the like."""

import shlex
from collections.abc import Collection, Mapping, Sequence

from favor.analyze.compare import MetricComparison, PairComparison
from favor.analyze.correlation import CorrelationResult
from favor.analyze.disagreement import DisagreementResult
from favor.analyze.effects import PairedEffect
from favor.analyze.flags import disturbance, is_unsteady
from favor.analyze.front import Front
from favor.analyze.guide import Guide, GuideModel
from favor.analyze.limits import Relaxation
from favor.analyze.matched import MatchedResult
from favor.analyze.metric_column import MetricColumn
from favor.analyze.origins import EXTRAPOLATED, said_source, shown_source
from favor.analyze.pareto import ParetoPoint
from favor.analyze.recommendation import Choice, Reading, Recommendation, ToDecide
from favor.analyze.selection import Excluded
from favor.cli.console import emit_line, emit_table
from favor.evidence import BestWeights
from favor.metrics import METRICS
from favor.runtime.names import TRAINING
from favor.terminal import note
from favor.text import first_few, ordinal, plural
from favor.units import format_difference, format_quantity
from favor.zoo.taxonomy import How

WITHOUT_INTERVALS = "numbers without intervals"
_SHOWN = 10


def print_recommendation(answer: Recommendation, weights: Mapping[str, BestWeights | None]) -> None:
    """The favored model, the runners-up, their pretrained weights, the reason, what to relax, and what to know."""
    emit_line(answer.headline or _why_none(answer))
    for reason in answer.undecided:
        emit_line(reason)
    if answer.choices:
        _print_choices(answer, weights)
    if answer.to_decide is not None:
        emit_line(to_decide_text(answer.to_decide))
    if answer.why is not None:
        _print_reason(answer)
    for limit in answer.limits:
        if limit.tested is not None:
            value = format_quantity(limit.value, limit.unit)
            emit_line(f"Tested: {limit} {value} against {METRICS[limit.metric].title.lower()}: {limit.tested}")
    if answer.relax is not None:
        for way in answer.relax.each:
            emit_line(f"Relax one limit: {_relaxation(way)}")
        if answer.relax.together is not None and answer.relax.together not in answer.relax.each:
            emit_line(f"Smallest change overall: {_relaxation(answer.relax.together)}")
        if answer.relax.unknown:
            note(f"note: {answer.relax.unknown} models lack the number that a limit needs and are not considered")
    for choice in answer.flagged:
        emit_line(f"Flagged: {choice.name} ({_quantity('top1', choice.metrics['top1'].value)}): {choice.flag}")
    for choice in (answer.favored,) if answer.favored else answer.undecided_between:
        in_torch = choice.deployment if choice.runtime in TRAINING else None
        if choice.training_run is not None:
            emit_line(f"Use it: favor predict {shlex.quote(choice.training_run)} photo.jpg")
        elif choice.command is not None:
            emit_line(f"Create it: {in_torch or choice.command}")
        if choice.deployment is not None and in_torch is None:
            emit_line(f"Export it for {choice.run}: {choice.deployment}")
        best = weights.get(choice.name)
        if choice.weights is None and best is not None and choice.training_run is None:
            emit_line(f"With published weights ({best}): favor predict {_pretrained(choice.name, best)} photo.jpg")
    for text in answer.notes:
        note(f"note: {text}")
    if answer.next_steps and answer.undecided and not answer.undecided_between:
        emit_line(f"Run: {'; then '.join(answer.next_steps)}{_minutes(answer.next_minutes)}")
    elif answer.next_steps and (answer.to_decide is None or answer.to_decide.command is None):
        commands = "; then ".join(answer.next_steps)
        note(f"to decide with your own measurements: {commands}{_minutes(answer.next_minutes)}")


def _pretrained(name: str, best: BestWeights) -> str:
    """A model with its best published weights, as commands take it.

    >>> _pretrained("resnet50", BestWeights("resnet50.a1_in1k", 81.2, 288))
    'resnet50 --weights resnet50.a1_in1k --img-size 288'
    """
    if best.checkpoint is None:
        return f"{name} --pretrained"
    return f"{name} --weights {best.checkpoint} --img-size {best.img_size}"


def to_decide_text(step: ToDecide) -> str:
    run = "" if step.command is None else f": {step.command}{_minutes(step.minutes)}"
    return f"To decide: {step.why}{run}"


def _minutes(minutes: float | None) -> str:
    return "" if minutes is None else f" (about {max(1, round(minutes))} min)"


def _why_none(answer: Recommendation) -> str:
    if answer.undecided_between:
        return "No model is favored."
    if answer.limits and not answer.undecided:
        return "No model is known to meet the limits."
    return "No model can be favored."


def _print_choices(answer: Recommendation, weights: Mapping[str, BestWeights | None]) -> None:
    choices = answer.choices
    of_all = [metric for choice in choices for metric in choice.metrics]
    metrics = [metric for metric in dict.fromkeys(of_all) if 2 * of_all.count(metric) >= len(choices)]
    # The only model is no winner of anything.
    chances = answer.considered > 1 and any(choice.probability_best is not None for choice in choices)
    shown = any(choice.called != choice.name for choice in choices)
    # Published weights are ranked by numbers of all sources, so every column names the source of its numbers.
    common = {metric: _common_source(metric, choices) for metric in metrics}
    columns = [
        "Model",
        *(["Runtime"] if shown else []),
        "Class",
        *(f"{_title(metric)}, {common[metric]}" if common[metric] else _title(metric) for metric in metrics),
        *(["P(best)"] if chances else []),
        "Pretrained",
    ]
    rows = [
        [
            _sized(choice.name, choice.img_size),
            *([choice.run] if shown else []),
            class_title(choice.how),
            *(_reading(metric, choice.metrics.get(metric), not common[metric]) for metric in metrics),
            *([_percentage(choice.probability_best) or "unknown"] if chances else []),
            str(choice.weights or weights[choice.name] or "none published"),
        ]
        for choice in choices
    ]
    emit_table("", columns, rows, right=columns[columns.index("Class") + 1 :])


def _common_source(metric: str, choices: Sequence[Choice]) -> str | None:
    """The source of all numbers of a column (measured, published, simulated); None if it varies or is not shown."""
    sources = [choice.metrics[metric].source for choice in choices if metric in choice.metrics]
    said = {said_source(source) for source in sources if source is not None}
    of_weights = any(choice.weights is not None for choice in choices)
    return said.pop() if of_weights and len(said) == 1 else None


def _print_reason(answer: Recommendation) -> None:
    if answer.why is None:
        return
    emit_line(f"Why: {answer.why.summary}")
    for binding in answer.why.binding:
        emit_line(f"  {binding}")
    if answer.why.dominates:
        emit_line(f"  {by_numbers('dominates', answer.why.dominates, answer.why.without_intervals, _SHOWN)}")
    for loss in answer.why.gives_up:
        own, best = _quantity(loss.metric, loss.own), _quantity(loss.metric, loss.best)
        emit_line(f"  trades off {METRICS[loss.metric].title.lower()}: {own}, against {best} for {loss.to}")


def by_numbers(verb: str, names: Sequence[str], without_intervals: Collection[str], most: int) -> str:
    """The models that one dominates, or is beaten by; those compared by a number without an interval are listed apart.

    >>> by_numbers("dominates", ["vit_s16", "swin_ti"], ["swin_ti"], 10)
    'dominates vit_s16; dominates swin_ti in numbers without intervals'
    """
    with_intervals = [name for name in names if name not in without_intervals]
    others = [name for name in names if name in without_intervals]
    texts = [f"{verb} {first_few(with_intervals, most)}"] if with_intervals else []
    return "; ".join([*texts, *([f"{verb} {first_few(others, most)} in {WITHOUT_INTERVALS}"] if others else [])])


def _relaxation(way: Relaxation) -> str:
    moved = []
    for limit in way.limits:
        by = format_difference(abs(limit.rounded - limit.limit), limit.unit)
        moved.append(f"{limit.option} from {format_quantity(limit.limit, limit.unit)} to {limit.text} (by {by})")
    if way.undecided_between:
        return f"{', '.join(moved)} may give {' or '.join(way.undecided_between)} (undecided)"
    return f"{', '.join(moved)} gives {_sized(way.name, way.img_size)}"


def print_guide(chart: Guide) -> None:
    """The flow chart as a table: constraint, phase, then the models with their class."""
    rows = [
        (branch.constraint, branch.phase, entry.title, entry.how, " ".join(_starred(entry)))
        for branch in chart.branches
        for entry in branch.suggestions
    ]
    columns = ("1. Constraint", "2. Phase", "3. Favor", "Class", "Models with known accuracy")
    emit_table("Which transformer to favor (Figure 6 of the benchmark, on its A100)", columns, rows)
    if any(entry.flagged for branch in chart.branches for entry in branch.suggestions):
        note("* flagged: its accuracy was measured with a different configuration")


def _starred(entry: GuideModel) -> list[str]:
    return [f"{name}*" if name in entry.flagged else name for name in entry.models]


def print_pareto(front: Front, everyone: bool) -> None:
    """The front; with `everyone`, also the other models and their distances; and the flagged accuracies."""
    result = front.result
    titles = [METRICS[metric].title for metric in result.metrics]
    known = ["P(on front)"] if result.probability is not None else []
    columns = ["Model", *titles, *known]
    has_chances = result.probability is not None
    rows = [_point(front, point, has_chances) for point in result.front]
    emit_table("Pareto front", columns, rows, right=columns[1:])
    others = [point for point in result.points if not point.member and point.flag is None]
    if everyone:
        columns = ["Model", *titles, *known, *(f"distance in {title.lower()}" for title in titles)]
        rows = [
            [
                *_point(front, point, has_chances),
                *(_quantity(metric, point.distance[metric]) for metric in result.metrics),
            ]
            for point in others
        ]
        emit_table("Not on the front", columns, rows, right=columns[1:])
    for point in result.points:
        if point.flag is not None:
            emit_line(f"Flagged and not on the front: {point.name}: {point.flag}")
    rule = "better in every metric" if result.strict else "better in one metric and no worse in the others"
    on_front = f"{len(result.front)} of {len(result.rows)} models are on the front{_without_intervals(front)}"
    note(f"{on_front}; a model is dominated if another is {rule}{_left_out(result.excluded)}")


def _without_intervals(front: Front) -> str:
    """A remark on a front with numbers that have no interval; empty if all have one or are exact."""
    if not front.without_intervals:
        return ""
    return f", {'partly ' * (front.without_intervals < len(front.result.rows))}by {WITHOUT_INTERVALS}"


def _point(front: Front, point: ParetoPoint, has_chances: bool) -> list[str]:
    return [
        _sized(point.name, point.img_size),
        *(marked(metric, reading) for metric, reading in front.readings(point).items()),
        *([_percentage(point.probability) or "unknown"] if has_chances else []),
    ]


def print_correlations(result: CorrelationResult) -> None:
    """All pairs of columns that have three models or more in common."""
    columns = ["Metric", "and", "n", "Pearson", "95 % interval", "Spearman", "95 % interval "]
    rows = [
        [
            pair.x,
            pair.y,
            str(pair.n),
            _coefficient(pair.pearson),
            _interval(pair.pearson_low, pair.pearson_high),
            _coefficient(pair.spearman),
            _interval(pair.spearman_low, pair.spearman_high),
        ]
        for pair in result.pairs
        if pair.pearson is not None
    ]
    emit_table("Correlation", columns, rows, right=columns[2:])
    undefined = len(result.pairs) - len(rows)
    if undefined:
        note(f"{undefined} pairs are not shown: they have fewer than three models in common, or do not vary")
    if disturbed := result.excluded.disturbed:
        note(f"left out: the busy or contradictory numbers of {plural(disturbed, 'model')}")
    if result.without:
        note(f"left out: {', '.join(result.without)}")
    for why in result.unequal:
        note(f"left out: {why}")


def print_effects(effects: Sequence[PairedEffect]) -> None:
    """The mean difference that each change makes, with its interval and test."""
    over = ["Seeds"] if any(effect.seeds for effect in effects) else []
    columns = ["Change", "Source", *over, "Pairs", "Mean difference", "95 % interval", "p", "Verdict"]
    rows = [
        [
            effect.change,
            str(effect.source),
            *([effect.seeds or ""] if over else []),
            str(effect.n),
            f"{effect.mean:+.3g} {'points' if effect.unit == '%' else effect.unit}",
            _interval(effect.low, effect.high),
            "" if effect.p is None else f"{effect.p:.2g}",
            effect.verdict,
        ]
        for effect in effects
    ]
    emit_table(f"Effects on {effects[0].metric}, all else equal", columns, rows, right=columns[-5:-1])
    for effect in effects:
        if effect.unequal is not None:
            note(f"{effect.change} ({effect.source}) is not tested: {effect.unequal}")


def print_disagreement(result: DisagreementResult) -> None:
    """The pairs of indicators, their strongest flips, and the two-faced models."""
    columns = ["Indicator", "and", "Models", "Pairs", "Flipped", "Share"]
    rows = [
        [pair.x, pair.y, str(pair.n), str(pair.pairs), str(pair.flipped), f"{pair.share:.0%}"] for pair in result.pairs
    ]
    emit_table("Pairs of models that two indicators rank differently", columns, rows, right=columns[2:])
    strongest = sorted(
        ((flip, pair) for pair in result.pairs for flip in pair.strongest), key=lambda entry: -entry[0].strength
    )
    if strongest:
        rows = [
            [flip.cheaper_by_x, f"{flip.factor_x:.2f} x", pair.x, flip.cheaper_by_y, f"{flip.factor_y:.2f} x", pair.y]
            for flip, pair in strongest[:_SHOWN]
        ]
        columns = ["Model", "cheaper", "by", "Model ", "cheaper ", "by "]
        emit_table("Strongest flips", columns, rows, right=["cheaper", "cheaper "])
    for entry in result.two_faced[:_SHOWN]:
        best, bad = ordinal(entry.rank_best), ordinal(entry.rank_bad)
        emit_line(f"{entry.name}: {best} of {entry.of} by {entry.best_by}, but {bad} by {entry.bad_by}")
    if result.warning is not None:
        emit_line(f"Warning: {result.warning}")
    note(f"{result.pairs[0].n} models{_left_out(result.excluded)}")


def print_comparison(pair: PairComparison) -> None:
    """Two models side by side; the verdict names the better one only where a test allows it."""
    names = {"a": pair.a, "b": pair.b}
    columns = ["Metric", pair.a, f"{pair.b} ", "Difference", "Better", "p", "Basis"]
    rows = [
        [
            METRICS[entry.metric].title,
            marked(entry.metric, entry.a),
            marked(entry.metric, entry.b),
            _difference(entry),
            names.get(entry.verdict, entry.verdict),
            _p(entry.p),
            _basis(entry),
        ]
        for entry in pair.metrics
    ]
    at = f" at {pair.img_size} px" if pair.img_size else ""
    emit_table(f"{pair.a} and {pair.b}{at}", columns, rows, right=columns[1:4])
    for name, why in pair.flagged.items():
        emit_line(f"Flagged: {name}: {why}")
    for name, only in ((pair.a, pair.only_a), (pair.b, pair.only_b)):
        if only:
            note(f"known only for {name}: {', '.join(only)}")
    if not pair.metrics:
        note("no metric is known for both; measure them with `favor measure NAME --study STUDY` and add --study STUDY")


def print_matched(result: MatchedResult, flagged: Mapping[str, str]) -> None:
    """Two families or classes under every match, and the flagged accuracies that are left out."""
    gain = f"{METRICS[result.quality].title}, {result.b} minus {result.a}"
    columns = ["Match", "Pairs", gain, "95 % interval", "p", "Verdict"]
    rows = [
        [
            f"{comparison.match} ({comparison.indicator})",
            str(comparison.effect.n),
            f"{comparison.effect.mean:+.2f} {comparison.effect.unit}",
            _interval(comparison.effect.low, comparison.effect.high),
            _p(comparison.effect.p),
            comparison.effect.verdict,
        ]
        for comparison in result.comparisons
    ]
    emit_table(f"{result.a} and {result.b}", columns, rows, right=columns[1:5])
    emit_line(result.verdict)
    for name, why in flagged.items():
        emit_line(f"Flagged and left out: {name}: {why}")
    for comparison in result.comparisons:
        if comparison.disturbed:
            which = f"{plural(comparison.disturbed, 'model')} with a busy or contradictory {comparison.indicator}"
            note(f"note: {comparison.match}: left out: {which}")
    for reason in result.missing:
        note(f"note: {reason}")


def _title(column: str) -> str:
    """The title of a metric; `latency_p50@t4` is the latency on a further device."""
    named = MetricColumn.named(column)
    return named.metric.title + (f" on {named.device}" if named.device else "")


def _quantity(column: str, value: float) -> str:
    return format_quantity(value, MetricColumn.named(column).metric.unit)


def _reading(metric: str, reading: Reading | None, with_source: bool = True) -> str:
    return "unknown" if reading is None else marked(metric, reading, with_source)


def marked(metric: str, reading: Reading, with_source: bool = True) -> str:
    """A number with its interval, its seeds, and a mark if it is simulated, extrapolated, doubtful or unfinished."""
    width = _half_width(metric, reading.value, reading.low, reading.high)
    seeds = ""
    if reading.seeds is not None and reading.seeds.std is not None:
        spread, best = (_quantity(metric, value) for value in (reading.seeds.std, reading.seeds.best))
        seeds = f" (n={reading.seeds.n}, std {spread}, best {best})"
    early = "" if reading.unfinished is None else f" (unfinished: epoch {reading.unfinished:g})"
    doubt = disturbance(reading.flags) or ("unsteady" if is_unsteady(reading.flags) else None)
    doubtful = f" ({doubt})" if doubt else ""
    source = _mark(shown_source(metric, reading.source, reading.low, reading.high)) if with_source else ""
    return f"{_quantity(metric, reading.value)}{width}{seeds}{source}{doubtful}{early}"


def _mark(source: str | None) -> str:
    return f" ({source})" if source in ("simulated", "predicted", EXTRAPOLATED) else ""


def _half_width(metric: str, value: float, low: float | None, high: float | None) -> str:
    """Half the interval as a share of the value, or in points for a percentage; `± ?` if it is not known."""
    known = MetricColumn.named(metric).metric
    if low is None or high is None:
        return "" if known.exact else " ± ?"
    if not value:
        return ""
    if known.unit == "%":
        return f" ± {(high - low) / 2:.2f}"
    return f" ± {(high - low) / 2 / abs(value):.1%}"


def _difference(entry: MetricComparison) -> str:
    """The second number relative to the first: a factor, or points for a percentage."""
    if entry.unit == "%":
        return f"{entry.difference:+.2f}"
    return "" if entry.ratio is None else f"x {entry.ratio:.3g}"


def _basis(entry: MetricComparison) -> str:
    """The test, and the numbers that it compared if others are shown."""
    if entry.tested is None:
        return entry.test
    a, b = (_quantity(entry.metric, value) for value in entry.tested)
    return f"{entry.test}: {a} and {b}"


def _p(p: float | None) -> str:
    if p is None:
        return ""
    return "< 1e-6" if p < 1e-6 else f"{p:.2g}"


def _percentage(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _coefficient(value: float | None) -> str:
    return "" if value is None else f"{value:+.2f}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:+.2f} to {high:+.2f}"


def _sized(name: str, img_size: int | None) -> str:
    return name if img_size in (None, 224) else f"{name}@{img_size}"


def class_title(how: str | None) -> str:
    """The title of a class of the taxonomy; empty for a model in none."""
    return next((entry.title for entry in How if entry.key == how), "")


def _left_out(excluded: Excluded) -> str:
    """Why the other models are not there.

    >>> _left_out(Excluded(failed=1, missing=200))
    '; left out: 200 models that lack one of these metrics, 1 that could not be trained or measured'
    """
    reasons = []
    if excluded.disturbed:
        reasons.append(f"{plural(excluded.disturbed, 'model')} with a busy or contradictory number")
    if excluded.missing:
        lack = "lacks" if excluded.missing == 1 else "lack"
        reasons.append(f"{plural(excluded.missing, 'model')} that {lack} one of these metrics")
    if excluded.failed:
        failed = str(excluded.failed) if reasons else plural(excluded.failed, "model")
        reasons.append(f"{failed} that could not be trained or measured")
    return f"; left out: {', '.join(reasons)}" if reasons else ""
