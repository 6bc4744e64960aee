"""Where the jobs of a study are on a cluster: running, queued, or lost. Imports no torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from favor.study import slurm_executor
from favor.study.allocation import key_of
from favor.study.folder import is_at_work
from favor.study.plan import Job
from favor.study.slurm_executor import Queued
from favor.study.submission import Progress, ProgressFile, Submission, submissions_of
from favor.training.slurm_step import first_node


@dataclass(frozen=True)
class Whereabouts:
    """A job on a cluster: its node, start and step if it runs; the reason if it is queued or lost."""

    status: Literal["running", "queued", "lost"]
    node: str = ""
    since: str = ""
    step: str = ""
    reason: str = ""


@dataclass(frozen=True)
class _Place:
    """Where the jobs of an allocation are, and for a running allocation the key of its current job."""

    whereabouts: Whereabouts
    running: str | None = None


class ClusterQueue:
    """The submissions of a study, and the allocations that Slurm has of each of them now, by their index."""

    def __init__(
        self, study: Path, submissions: Sequence[Submission], in_slurm: Mapping[str, Mapping[int, Queued]]
    ) -> None:
        self._study, self._submissions, self._in_slurm = study, submissions, in_slurm
        self._ray_at_work = any(submission.executor == "ray" for submission in submissions) and is_at_work(study)
        self._places: dict[tuple[str, int], _Place] = {}
        self._newest = {
            key: (submission, index)
            for submission in submissions
            for index, keys in enumerate(submission.allocations)
            for key in keys
        }

    @classmethod
    def now(cls, study: Path) -> "ClusterQueue":
        """The queue as Slurm sees it now."""
        submissions = submissions_of(study)
        return cls(study, submissions, slurm_executor.queue_of(submissions))

    def running(self) -> int:
        """How many allocations run now."""
        queued = (one for allocations in self._in_slurm.values() for one in allocations.values())
        return self._ray_at_work + sum(one.status == "running" for one in queued)

    def alive(self, jobs: Iterable[Job]) -> tuple[Job, ...]:
        """The jobs of allocations that wait or run on Slurm; those on Ray end with the process that started them."""
        keys = {
            key
            for submission in self._submissions
            for index, queued in self._in_slurm.get(submission.name, {}).items()
            if queued.status != "ended"
            for key in submission.allocations[index]
        }
        return tuple(job for job in jobs if key_of(job) in keys)

    def find(self, job: Job) -> Whereabouts | None:
        """Where a job is that has no record yet; None if it was never submitted."""
        key = key_of(job)
        if key not in self._newest:
            return None
        submission, index = self._newest[key]
        place = self._places.get((submission.number, index))
        if place is None:
            place = self._places[submission.number, index] = self._place(submission, index)
        if place.running not in (None, key):
            return Whereabouts("queued", reason="its allocation is running")
        return place.whereabouts

    def _place(self, submission: Submission, index: int) -> "_Place":
        progress = ProgressFile.of(self._study, submission, index).read() or Progress(node="")
        queued = None if submission.executor == "ray" else self._in_slurm[submission.name].get(index)
        status = "running" if self._ray_at_work and submission.executor == "ray" else "ended"
        if queued is not None:
            status = queued.status
        if status == "running" and queued is not None and first_node(queued.node) != progress.node:
            # It has not reported yet, or only where it ran before it was requeued.
            return _Place(Whereabouts("queued", reason="its allocation is starting"))
        if status == "running":
            return _Place(Whereabouts("running", progress.node, progress.since, progress.step), progress.job)
        if status == "queued":
            reason = "" if queued is None or queued.reason == "None" else queued.reason
            return _Place(Whereabouts("queued", reason=reason))
        said = "" if submission.executor == "ray" else slurm_executor.last_words(self._study, submission, index)
        last_state = ": ".join(part for part in ("" if queued is None else queued.state, said) if part)
        return _Place(Whereabouts("lost", progress.node, reason=progress.problem or last_state or "ended unseen"))
