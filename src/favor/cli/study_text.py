"""How a study reads on a terminal: its jobs, its state, and its answer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from favor.cli.console import emit_table, note, stdout_console
from favor.metrics import METRICS
from favor.records.schema import Record
from favor.study.plan import Job
from favor.study.progress import JobState, flags_of, is_busy
from favor.study.resolved import ResolvedStudy
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
    """What came of a job, on one line."""
    parts = []
    for record in records:
        values = [record.metrics[name] for name in _LINE_METRICS[job.phase] if name in record.metrics]
        parts += [format_quantity(reading.value, reading.unit) for reading in values]
        parts += [f"{record.status}: {record.reason}"] if record.reason else []
        parts += flags_of(record)
    return f"{job}: {', '.join(parts) or 'done'} ({format_span(seconds)})"


def states_data(states: Sequence[JobState]) -> dict[str, Any]:
    """How the jobs stand, for JSON."""
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
        own = [state.status for state in states if state.job.phase == phase]
        rows.append((phase, str(len(own)), *(str(own.count(status)) for status in ("done", "failed", "left"))))
    names = ", ".join(dict.fromkeys(study.name for study in studies))
    machines = ", ".join(dict.fromkeys(str(study.machine) for study in studies))
    emit_table(f"{names} on {machines}" if studies else str(folder), columns, rows, right=columns[1:])
    _print_failures(states)
    _print_busy(states)
    left = sum(state.status == "left" for state in states)
    if not studies:
        _say("The folder has records, but nothing was asked for in it: `favor measure --study` and others do that")
    elif not left:
        _say("nothing is left to do")
    elif at_work:
        _say(f"at work now; about {format_span(seconds)} left")
    else:
        _say(f"not at work now; `favor resume {folder}` would take about {format_span(seconds)}")


def print_answer(
    study: ResolvedStudy, found: "Answer", states: Sequence[JobState], folder: Path, page: Path | None
) -> None:
    """Who is favored for what here, where ViT stands, how costs disagree, what is missing, and where the page is."""
    _print_favored(study, found)
    for name in dict.fromkeys(standing.name for standing in found.standing):
        _say(f"{name}: " + "; ".join(_standing(each) for each in found.standing if each.name == name))
    if found.disagreement is not None and found.disagreement.warning is not None:
        _say(f"Costs disagree: {found.disagreement.warning}")
    _print_failures(states)
    _print_busy(states)
    left = [str(state.job) for state in states if state.status == "left"]
    if left:
        _say(f"Not done for want of time: {_some(left)}; `favor resume {folder}` goes on")
    _say(f"Page: {page}" if page is not None else f"Records: {folder}")
    note(f"note: accuracies are on {study.report.dataset}; `favor recommend --study {folder}` takes your own limits")


def _print_favored(study: ResolvedStudy, found: "Answer") -> None:
    least = study.report.min_accuracy
    limit = "" if least is None else f", {least:g} % or more"
    choices = {goal: answer.favored for goal, answer in found.favored.items() if answer.favored is not None}
    shown = [name for name in _GOAL_METRICS if any(name in known for known in found.figures.values())]
    columns = ["Favored for", "Model", "Class", *(METRICS[name].title for name in shown)]
    rows = [
        [
            goal if goal == "accuracy" else f"{goal}{limit}",
            choice.name,
            _class_title(choice),
            *(_figure(found.figures[goal], name) for name in shown),
        ]
        for goal, choice in choices.items()
    ]
    if rows:
        emit_table(f"{study.name}: {found.models} models on {study.machine}", columns, rows, right=columns[3:])
    for goal, answer in found.favored.items():
        if answer.favored is None:
            _say(f"For {goal} none is favored: {'; '.join(answer.undecided) or 'no model keeps the limit'}")
        elif answer.why is not None:
            sure = answer.favored.probability_best
            _say(f"{goal}: {answer.why.summary}" + ("" if sure is None else f"; best in {sure:.0%} of draws"))
    for goal, why in found.undecided.items():
        _say(f"For {goal} none is favored: {why}")


def _figure(known: Mapping[str, float], name: str) -> str:
    return format_quantity(known[name], METRICS[name].unit) if name in known else ""


def _standing(standing: "Standing") -> str:
    text = f"{standing.place}. of {standing.of} by {METRICS[standing.metric].title.lower()}"
    if standing.on_front is None:
        return text
    if not standing.on_front:
        return f"{text} (beaten by {_some(standing.beaten_by)})"
    sure = "" if standing.probability is None else f" in {standing.probability:.0%} of draws"
    return f"{text} (on the front with accuracy{sure})"


def _print_failures(states: Sequence[JobState]) -> None:
    for state in states:
        if state.status == "failed":
            _say(f"Failed: {state.job}: {state.reason}")


def _print_busy(states: Sequence[JobState]) -> None:
    busy = [str(state.job) for state in states if is_busy(state.record)]
    if busy:
        done = sum(state.status == "done" and state.job.phase != "count" for state in states)
        _say(f"Busy: others used the machine during {len(busy)} of {done} measurements, so that their times may be off")


def _class_title(choice: "Choice") -> str:
    return next((entry.title for entry in How if entry.key == choice.how), "")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def _say(text: str) -> None:
    stdout_console().print(text, markup=False, soft_wrap=True)
