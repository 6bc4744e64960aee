"""A study on a terminal: its jobs, its state, and its answer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from favor.cli.console import emit_table, note, stdout_console
from favor.metrics import METRICS
from favor.records.schema import Record
from favor.study.plan import Job
from favor.study.progress import JobState, flags_of, is_busy
from favor.study.resolved import ResolvedStudy
from favor.text import ordinal
from favor.units import format_quantity, format_span
from favor.zoo.taxonomy import How

if TYPE_CHECKING:  # they bring pandas, which `favor status` has no use for
    from favor.analyze.recommendation import Choice
    from favor.study.summary import Answer, Standing

_SHOWN = 4
_GOAL_METRICS = ("top1", "throughput", "latency_p50", "inference_memory", "params")
_LINE_METRICS = {
    "count": ("params", "macs"),
    "inference": ("latency_p50", "throughput", "inference_memory"),
    "training": ("train_step_time", "train_memory"),
    "accuracy": ("top1",),
}


def job_line(job: Job, records: Sequence[Record], seconds: float) -> str:
    """The result of a job, on one line."""
    parts = []
    for record in records:
        values = [record.metrics[name] for name in _LINE_METRICS[job.phase] if name in record.metrics]
        parts += [format_quantity(reading.value, reading.unit) for reading in values]
        parts += [f"{record.status}: {record.reason}"] if record.reason else []
        parts += flags_of(record)
    return f"{job}: {', '.join(parts) or 'done'} ({format_span(seconds)})"


def states_data(states: Sequence[JobState]) -> dict[str, Any]:
    """The states of the jobs, for JSON."""
    return {
        "jobs": len(states),
        "done": sum(state.status == "done" for state in states),
        "failed": [{"job": str(state.job), "reason": state.reason} for state in states if state.status == "failed"],
        "left": [str(state.job) for state in states if state.status == "left"],
        "busy": [str(state.job) for state in states if is_busy(state.record)],
    }


def print_status(
    studies: Sequence[ResolvedStudy], states: Sequence[JobState], folder: Path, at_work: bool, seconds: float
) -> None:
    """The jobs by phase, the failures with their reasons, and the time that is left."""
    columns = ("Phase", "Jobs", "Done", "Failed", "Left")
    rows = []
    for phase in dict.fromkeys(state.job.phase for state in states):
        statuses = [state.status for state in states if state.job.phase == phase]
        counts = (str(statuses.count(status)) for status in ("done", "failed", "left"))
        rows.append((phase, str(len(statuses)), *counts))
    names = ", ".join(dict.fromkeys(study.name for study in studies))
    machines = ", ".join(dict.fromkeys(str(study.machine) for study in studies))
    emit_table(f"{names} on {machines}" if studies else str(folder), columns, rows, right=columns[1:])
    _print_failures(states)
    _print_busy(states)
    left = sum(state.status == "left" for state in states)
    if not studies:
        _say(f"The folder has records but no jobs; `favor measure NAME --study {folder}` adds some")
    elif not left:
        _say("Nothing is left to do.")
    elif at_work:
        _say(f"Running; about {format_span(seconds)} left")
    else:
        _say(f"Not running; `favor resume {folder}` would take about {format_span(seconds)}")


def print_answer(
    study: ResolvedStudy, answer: "Answer", states: Sequence[JobState], folder: Path, page: Path | None
) -> None:
    """The favored model for each goal, the ranks of ViT, how costs disagree, what is missing, and the page."""
    _print_favored(study, answer)
    for name in dict.fromkeys(standing.name for standing in answer.standing):
        _say(f"{name}: " + "; ".join(_standing(entry) for entry in answer.standing if entry.name == name))
    if answer.disagreement is not None and answer.disagreement.warning is not None:
        _say(f"Costs disagree: {answer.disagreement.warning}")
    _print_failures(states)
    _print_busy(states)
    left = [str(state.job) for state in states if state.status == "left"]
    if left:
        _say(f"Not done, because the time budget ran out: {_some(left)}; `favor resume {folder}` continues")
    _say(f"Page: {page}" if page is not None else f"Records: {folder}")
    note(f"note: accuracies are on {study.report.dataset}; `favor recommend --study {folder}` accepts your own limits")


def _print_favored(study: ResolvedStudy, answer: "Answer") -> None:
    least = study.report.min_accuracy
    limit = "" if least is None else f", {least:g} % or more"
    choices = {goal: best.favored for goal, best in answer.favored.items() if best.favored is not None}
    shown = [name for name in _GOAL_METRICS if any(name in values for values in answer.figures.values())]
    columns = ["Favored for", "Model", "Class", *(METRICS[name].title for name in shown)]
    rows = [
        [
            goal if goal == "accuracy" else f"{goal}{limit}",
            choice.name,
            _class_title(choice),
            *(_figure(answer.figures[goal], name) for name in shown),
        ]
        for goal, choice in choices.items()
    ]
    if rows:
        emit_table(f"{study.name}: {answer.models} models on {study.machine}", columns, rows, right=columns[3:])
    for goal, best in answer.favored.items():
        if best.favored is None:
            _say(f"No model is favored for {goal}: {'; '.join(best.undecided) or 'none meets the limit'}")
        elif best.why is not None:
            sure = best.favored.probability_best
            _say(f"{goal}: {best.why.summary}" + ("" if sure is None else f"; best with probability {sure:.0%}"))
    for goal, why in answer.undecided.items():
        _say(f"No model is favored for {goal}: {why}")


def _figure(values: Mapping[str, float], name: str) -> str:
    return format_quantity(values[name], METRICS[name].unit) if name in values else ""


def _standing(standing: "Standing") -> str:
    text = f"{ordinal(standing.place)} of {standing.of} by {METRICS[standing.metric].title.lower()}"
    if standing.on_front is None:
        return text
    if not standing.on_front:
        return f"{text} (beaten by {_some(standing.beaten_by)})"
    sure = "" if standing.probability is None else f", probability {standing.probability:.0%}"
    return f"{text} (on the Pareto front with accuracy{sure})"


def _print_failures(states: Sequence[JobState]) -> None:
    for state in states:
        if state.status == "failed":
            _say(f"Failed: {state.job}: {state.reason}")


def _print_busy(states: Sequence[JobState]) -> None:
    busy = [str(state.job) for state in states if is_busy(state.record)]
    if busy:
        done = sum(state.status == "done" and state.job.phase != "count" for state in states)
        _say(f"Busy: other programs ran during {len(busy)} of {done} measurements; their times may be too long")


def _class_title(choice: "Choice") -> str:
    return next((entry.title for entry in How if entry.key == choice.how), "")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def _say(text: str) -> None:
    stdout_console().print(text, markup=False, soft_wrap=True)
