"""How the jobs of a study are divided among the allocations of a cluster. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from favor.measurement.job import MeasureJob
from favor.records.schema import Scalar, request_of
from favor.study.plan import Job
from favor.study.train_jobs import TrainJob, dataset_of, stage_conditions


@dataclass(frozen=True)
class Allocation:
    """Jobs that one allocation runs one after another: a training run alone, or a share of the short jobs."""

    jobs: tuple[Job, ...]

    @property
    def trains(self) -> bool:
        return isinstance(self.jobs[0], TrainJob)

    @property
    def measures(self) -> bool:
        """Whether it needs a device that nobody else uses."""
        return any(isinstance(job, MeasureJob) for job in self.jobs)


def allocations_of(jobs: Sequence[Job], shared_by: int) -> tuple[Allocation, ...]:
    """One allocation per training; counts and measurements are divided among at most `shared_by` allocations.

    Schedulers refuse thousands of short jobs, and each would wait in the queue on its own.
    """
    short = [job for job in jobs if not isinstance(job, TrainJob)]
    shares = [short[first::shared_by] for first in range(min(shared_by, len(short)))]
    trainings = [(job,) for job in jobs if isinstance(job, TrainJob)]
    return tuple(Allocation(tuple(share)) for share in (*shares, *trainings))


def key_of(job: Job) -> str:
    """The content hash that identifies a job in the queue; it stays the same in new versions of favor."""
    if not isinstance(job, TrainJob):
        return request_of(job.name, job.phase, job.conditions)
    asked: dict[str, Scalar] = {"pretraining": job.first_weights.pretraining, "attention": job.attention}
    if job.first_weights.hash is not None:
        asked["initial_weights"] = job.first_weights.hash
    for number, lineage in enumerate(job.lineages):
        stage = lineage[-1]
        of_stage = stage_conditions(stage, job.seed, job.name) | {
            "dataset": dataset_of(stage),
            "name": stage.name or "",
        }
        asked |= {f"{number}.{name}": value for name, value in of_stage.items()}
    return request_of(job.name, job.phase, asked)
