"""The executor of this machine: counts here, measures and trains in a process of its own for each job."""

from collections.abc import Callable
from pathlib import Path

from favor.machine.device import Device
from favor.machine.messages import one_line
from favor.measure.meters import default_memory_limit, default_time_limit, measure
from favor.records.schema import CardFields, Record, reading, timestamp
from favor.study.plan import CountJob, Job, MeasureJob
from favor.study.train_process import train
from favor.trace.counts import METRIC_NAMES, count
from favor.zoo.registry import card


class LocalExecutor:
    """Does jobs on a device of this machine, one at a time: two at once would disturb each other's times."""

    def __init__(self, folder: Path, device: Device) -> None:
        self._folder, self._device = folder, device

    def execute(self, job: Job, budget: float, on_step: Callable[[str], None]) -> tuple[Record, ...]:
        if isinstance(job, CountJob):
            on_step("counting")
            return (count_record(job),)
        if isinstance(job, MeasureJob):
            limits = default_time_limit(budget, compiled=False), default_memory_limit(self._device)
            return (measure(job.request(budget, *limits), on_step),)
        return train(job, self._folder, on_step)


def count_record(job: CountJob) -> Record:
    """What a model costs on paper; a model that cannot be counted is a record with the reason."""
    about = {
        "name": job.name,
        "model": CardFields.of(card(job.name)),
        "task": "count",
        "source": "measured",
        "time": timestamp(),
    }
    try:
        counts = count(job.name, img_size=job.img_size, num_classes=job.num_classes)
    except Exception as error:  # noqa: BLE001 - whatever a user's own model raises is its failure and not the study's
        reason = one_line(f"counting: {type(error).__name__}: {error}")
        return Record(**about, conditions=job.conditions, status="failed", reason=reason)  # type: ignore[arg-type]
    metrics = {
        name: reading(name, getattr(counts, name), method="counted on the operator trace") for name in METRIC_NAMES
    }
    return Record(**about, conditions={**job.conditions, **counts.operating_point}, metrics=metrics)  # type: ignore[arg-type]
