"""A study on a terminal: its jobs, its state, and its answer."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from favor.cli.console import emit_line, emit_table
from favor.metrics import METRICS
from favor.records.rounds import Pairs, against_the_fastest
from favor.records.schema import Record
from favor.study.plan import Job
from favor.study.progress import JobState, doubts_of
from favor.study.resolved import ResolvedStudy
from favor.terminal import note
from favor.text import first_few, ordinal, plural
from favor.units import format_span

if TYPE_CHECKING:  # these import pandas, which `favor status` does not need
    from favor.report.study_answer import StudyAnswer
    from favor.study.cluster_queue import Whereabouts
    from favor.study.summary import Answer, Standing

_SHOWN = 4
_GOAL_METRICS = ("top1", "throughput", "latency_p50", "inference_memory", "params")


def states_data(states: Sequence[JobState], jobless: Sequence[Record] = ()) -> dict[str, Any]:
    """The states of the jobs, for JSON; `jobless` are doubtful measurements that belong to no job."""
    return {
        "jobs": len(states),
        "done": sum(state.status == "done" for state in states),
        "failed": [{"job": str(state.job), "reason": state.reason} for state in states if state.status == "failed"],
        "left": [str(state.job) for state in states if state.status == "left"],
        "head_to_head": [
            {
                "fastest": pair.b,
                "other": pair.a,
                "ratio": pair.ratio,
                "interval": pair.interval,
                "rounds": len(pair.ratios),
            }
            for pair in _head_to_head(states)
        ],
        "doubtful": [
            {"job": title, "reasons": list(doubts)}
            for title, record in _titled(states, jobless)
            if (doubts := doubts_of(record))
        ],
    }


def places_data(places: "Mapping[Job, Whereabouts]") -> dict[str, Any]:
    """Where the jobs are that are left, for JSON; `left` lists all of them."""
    shown = {"running": ("node", "since", "step"), "queued": ("reason",), "lost": ("node", "reason")}
    return {
        status: [
            {"job": str(job)} | {name: getattr(place, name) for name in names}
            for job, place in places.items()
            if place.status == status
        ]
        for status, names in shown.items()
    }


def print_status(
    studies: Sequence[ResolvedStudy],
    states: Sequence[JobState],
    folder: Path,
    at_work: bool,
    seconds: float,
    places: "Mapping[Job, Whereabouts] | None" = None,
    jobless: Sequence[Record] = (),
) -> None:
    """The jobs by phase, where they are on a cluster, the failures with their reasons, and the time that is left.

    `jobless` are doubtful measurements that belong to no job, for example in a folder with records only.
    """
    places = places or {}
    in_queue = ("running", "queued") if places else ()
    columns = ("Phase", "Jobs", "Done", "Failed", *(status.title() for status in in_queue), "Left")
    rows = []
    for phase in dict.fromkeys(state.job.phase for state in states):
        statuses = [_status(state, places) for state in states if state.job.phase == phase]
        counts = (str(statuses.count(status)) for status in ("done", "failed", *in_queue, "left"))
        rows.append((phase, str(len(statuses)), *counts))
    names = ", ".join(dict.fromkeys(study.name for study in studies))
    machines = ", ".join(dict.fromkeys(str(study.machine) for study in studies))
    emit_table(f"{names} on {machines}" if studies else str(folder), columns, rows, right=columns[1:])
    _print_failures(states)
    _print_doubts(studies, states, folder, jobless)
    _print_places(places)
    left = sum(state.status == "left" for state in states)
    if not studies:
        emit_line(f"The folder has records but no jobs; `favor measure NAME --study {folder}` adds some")
    elif not left:
        if not any(doubts_of(state.record) for state in states):
            emit_line("Nothing is left to do.")
    elif at_work:
        emit_line(f"Running; about {format_span(seconds)} left")
    else:
        emit_line(f"Not running; `favor resume {folder}` would take about {format_span(seconds)}")


def _status(state: JobState, places: "Mapping[Job, Whereabouts]") -> str:
    place = places.get(state.job)
    return state.status if place is None or place.status == "lost" else place.status


def _print_places(places: "Mapping[Job, Whereabouts]") -> None:
    lost: dict[tuple[str, str], list[str]] = defaultdict(list)
    for job, place in places.items():
        if place.status == "running":
            emit_line(f"Running: {job} on {place.node} since {place.since}{': ' if place.step else ''}{place.step}")
        elif place.status == "lost":
            lost[place.node, place.reason].append(str(job))
    waiting = Counter(place.reason or "waiting" for place in places.values() if place.status == "queued")
    for reason, count in waiting.items():
        emit_line(f"Queued: {count} ({reason})")
    for (node, reason), jobs in lost.items():
        where = f" on {node}" if node else ""
        emit_line(f"Lost: {first_few(jobs, _SHOWN)}{where}: {reason}; `favor resume` submits them again")


def print_answer(
    study: ResolvedStudy,
    answer: "Answer",
    states: Sequence[JobState],
    folder: Path,
    page: Path | None,
    out_of_time: Collection[Job],
) -> None:
    """The favored model for each goal, the ranks of ViT, how costs disagree, what is missing, and the page."""
    in_words = answer_told(study, answer)
    if in_words.rows:
        emit_table(in_words.title, in_words.columns, in_words.rows, right=in_words.columns[3:])
    for sentence in in_words.sentences:
        emit_line(sentence)
    for pair in _head_to_head(states):
        ends = "unknown interval" if pair.interval is None else "95 %: {:.2f} to {:.2f}".format(*pair.interval)
        how = f"{ends}, {len(pair.ratios)} quiet rounds in turns"
        emit_line(f"Head to head: {pair.b} is {pair.ratio:.2f} times as fast as {pair.a} ({how})")
    print_runtimes(states)
    _print_failures(states)
    _print_doubts((study,), states, folder)
    _print_missing_p99(states)
    _print_left(study, states, folder, out_of_time)
    emit_line(f"Page: {page}" if page is not None else f"Records: {folder}")
    note(f"note: accuracies are on {study.report.dataset}; `favor recommend --study {folder}` accepts your own limits")


def answer_told(study: ResolvedStudy, answer: "Answer") -> "StudyAnswer":
    """The answer in words, for the terminal and for the page."""
    from favor.cli.decision_text import class_title, marked
    from favor.report.study_answer import StudyAnswer

    least = study.report.min_accuracy
    limit = "" if least is None else f", {least:g} % or more"
    choices = {goal: best.favored for goal, best in answer.favored.items() if best.favored is not None}
    shown = [name for name in _GOAL_METRICS if any(name in values for values in answer.figures.values())]
    columns = ("Favored for", "Model", "Class", *(METRICS[name].title for name in shown))
    rows = tuple(
        (
            goal if goal == "accuracy" else f"{goal}{limit}",
            choice.called,
            class_title(choice.how),
            *(marked(name, reading) if (reading := answer.figures[goal].get(name)) else "" for name in shown),
        )
        for goal, choice in choices.items()
    )
    title = f"{study.name}: {answer.models} models on {study.machine}"
    return StudyAnswer(title, columns, rows, tuple(_sentences(answer)))


def _sentences(answer: "Answer") -> Iterator[str]:
    from favor.cli.decision_text import to_decide_text

    for goal, best in answer.favored.items():
        if best.favored is None:
            yield f"No model is favored for {goal}: {'; '.join(best.undecided) or 'none meets the limit'}"
            if best.to_decide is not None:
                yield to_decide_text(best.to_decide)
        elif best.why is not None:
            sure = best.favored.probability_best
            how_sure = "certainty unknown" if sure is None else f"best with probability {sure:.0%}"
            yield f"{goal}: {best.why.summary}; {how_sure}"
    for goal, why in answer.undecided.items():
        yield f"No model is favored for {goal}: {why}"
    if answer.untried:
        names = first_few(answer.untried, 3)
        yield f"Not measured yet, but may be better: {names}. To measure: `{answer.to_measure_them}`"
    for name in dict.fromkeys(standing.name for standing in answer.standing):
        yield f"{name}: " + "; ".join(_standing(entry) for entry in answer.standing if entry.name == name)
    if answer.disagreement is not None and answer.disagreement.warning is not None:
        disturbed = answer.disagreement.excluded.disturbed
        left_out = f" Left out: {plural(disturbed, 'model')} with a busy or contradictory cost." if disturbed else ""
        yield f"Costs disagree: {answer.disagreement.warning}{left_out}"


def _standing(standing: "Standing") -> str:
    from favor.cli.decision_text import by_numbers

    by = METRICS[standing.metric].title.lower()
    if standing.place is None:
        return f"no rank by {by}, which is busy or contradictory"
    left_out = f", {standing.disturbed} busy or contradictory left out" if standing.disturbed else ""
    text = f"{ordinal(standing.place)} of {standing.of} by {by}{left_out}"
    if standing.on_front is None:
        return text
    if not standing.on_front:
        return f"{text} ({by_numbers('beaten by', standing.beaten_by, standing.without_intervals, _SHOWN)})"
    sure = "" if standing.probability is None else f", probability {standing.probability:.0%}"
    return f"{text} (on the Pareto front with accuracy{sure})"


def _print_failures(states: Sequence[JobState]) -> None:
    for state in states:
        if state.status == "failed":
            emit_line(f"Failed: {state.job}: {state.reason}")


def _print_left(study: ResolvedStudy, states: Sequence[JobState], folder: Path, out_of_time: Collection[Job]) -> None:
    left = [state.job for state in states if state.status == "left"]
    late, others = ([str(job) for job in left if (job in out_of_time) == is_late] for is_late in (True, False))
    if late:
        shown = first_few(late, _SHOWN)
        emit_line(f"Not done, because the time budget ran out: {shown}; `favor resume {folder}` continues")
    if others and study.machine.is_cluster:
        why = f"`favor status {folder}` says why, `favor resume {folder}` submits them again"
        emit_line(f"Not done: {first_few(others, _SHOWN)}; {why}")
    elif others:
        emit_line(f"Not done: {first_few(others, _SHOWN)}; `favor resume {folder}` tries again")


def _head_to_head(states: Sequence[JobState]) -> tuple[Pairs, ...]:
    return against_the_fastest([state.record for state in states if state.record is not None])


def _titled(states: Sequence[JobState], jobless: Sequence[Record]) -> Iterator[tuple[str, Record | None]]:
    """The records of jobs, and those that belong to no job, each with a title like a job's."""
    for state in states:
        yield str(state.job), state.record
    for record in jobless:
        conditions = record.conditions
        yield f"{record.name}@{conditions.get('img_size')} {record.task} {conditions.get('precision')}", record


def _print_doubts(
    studies: Sequence[ResolvedStudy], states: Sequence[JobState], folder: Path, jobless: Sequence[Record] = ()
) -> None:
    doubtful = [state for state in states if doubts_of(state.record)]
    for title, record in _titled(doubtful, jobless):
        emit_line(f"Doubtful: {title}: {'; '.join(doubts_of(record))}")
    if jobless:
        again = f"repeat those of a model with `favor measure NAME --study {folder} --repeat flagged`"
        emit_line(f"{plural(len(jobless), 'doubtful measurement')} outside the study's jobs; {again}")
    if doubtful:
        done = sum(state.status == "done" and state.job.phase != "count" for state in states)
        # On a cluster, a finished job is submitted again only if the user asks for it.
        again = " --repeat flagged" if any(study.machine.is_cluster for study in studies) else ""
        emit_line(f"{len(doubtful)} of {done} measurements are doubtful; `favor resume {folder}{again}` repeats them")


def print_runtimes(states: Sequence[JobState]) -> None:
    """Whether models change places between runtimes."""
    from favor.report.runtimes import runtimes_finding

    finding = runtimes_finding(state.record for state in states if state.record is not None)
    if finding is not None:
        emit_line(finding)


def _print_missing_p99(states: Sequence[JobState]) -> None:
    measured = [state.record for state in states if state.job.phase == "inference" and state.record is not None]
    missing = [record.name for record in measured if "latency_p99_missing" in record.environment]
    if missing:
        known = f"p99 latency is known for {len(measured) - len(missing)} of {len(measured)} models"
        emit_line(f"{known}; the others are too slow for enough calls within the budget (`favor measure {missing[0]}`)")
