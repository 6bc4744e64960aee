"""How a run is shown on stderr: a line for each job above a progress bar. Imports no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from favor.machine.clock import Clock
from favor.records.schema import Record
from favor.study.estimate import Forecast
from favor.study.plan import Job
from favor.study.progress import flags_of, records_of, training_state, unreadable_in
from favor.study.train_jobs import TrainJob
from favor.terminal import SECONDS_BETWEEN_LINES, note
from favor.units import format_quantity, format_span

if TYPE_CHECKING:
    from rich.progress import Progress

_LINE_METRICS = {
    "count": ("params", "macs"),
    "inference": ("latency_p50", "throughput", "inference_memory"),
    "training": ("train_step_time", "train_memory"),
    "load": ("max_qps",),
    "accuracy": ("top1",),
}


class Display:
    """Shows a run: a line for each job that ended, above a bar with the time left where there is a terminal.

    Without a terminal, a long job prints a line from time to time.
    """

    def __init__(self, bar: "Progress", forecast: Forecast, folder: Path | None, total: int, clock: Clock) -> None:
        self._bar, self._forecast, self._folder, self._total, self._clock = bar, forecast, folder, total, clock
        self._task = bar.add_task("starting", total=total)
        self._number, self._last_line = 0, clock.now()

    def begins(self, job: Job) -> None:
        self._bar.update(self._task, description=str(job))

    def at_step(self, job: Job, step: str) -> None:
        self._bar.update(self._task, description=f"{job}: {step}")
        if not self._bar.console.is_terminal and self._clock.now() - self._last_line >= SECONDS_BETWEEN_LINES:
            self.note(f"{job}: {step}")

    def note(self, text: str) -> None:
        self._last_line = self._clock.now()
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def ended(self, job: Job, records: Sequence[Record], seconds: float) -> None:
        self._number += 1
        if self._number > self._total:  # repeated jobs
            self._total = self._number
            self._bar.update(self._task, total=self._total)
        self._bar.advance(self._task)
        shown = list(records)
        if isinstance(job, TrainJob) and self._folder is not None:  # its worker writes the records
            last = training_state(job, records_of(self._folder)).record
            shown += [] if last is None or last in shown else [last]
        left = "" if self._bar.console.is_terminal else f"; about {format_span(self._forecast.seconds_left())} left"
        self.note(f"[{self._number}/{self._total}] {job_line(job, shown, seconds)}{left}")


def job_line(job: Job, records: Sequence[Record], seconds: float) -> str:
    """The result of a job, on one line."""
    parts = []
    for record in records:
        values = [record.metrics[name] for name in _LINE_METRICS[job.phase] if name in record.metrics]
        parts += [format_quantity(reading.value, reading.unit) for reading in values]
        parts += [f"{record.status}: {record.reason}"] if record.reason else []
        parts += flags_of(record)
    return f"{job}: {', '.join(parts) or 'done'} ({format_span(seconds)})"


def warn_of_unreadable_lines(folder: Path | None) -> None:
    """Warn about records that cannot be read; their jobs are repeated."""
    for problem in unreadable_in(folder) if folder is not None else ():
        note(f"warning: {problem}")
