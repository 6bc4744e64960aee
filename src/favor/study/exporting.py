"""Exporting models for the runtimes that open files: once for all jobs that need the same graph."""

import hashlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from favor.machine.messages import Findings
from favor.machine.process import supervise, worker_command, worker_environment
from favor.measurement.job import MeasureJob
from favor.training.export_worker import ExportJob

TIME_LIMIT = 1800.0
MOST_BYTES = 4 * 2**30
"""Bytes of files that are kept for other jobs: the float graphs of twenty models of ViT-B's size."""


@dataclass(frozen=True)
class ExportedJob:
    """A job with the folder of its files, and the findings of exporting them; None if PyTorch runs the model itself."""

    job: MeasureJob
    findings: Findings | None


class Exports:
    """Exported models in a temporary folder; the oldest are deleted when they take too much room."""

    def __init__(self) -> None:
        self._place: tempfile.TemporaryDirectory[str] | None = None

    def of(self, job: MeasureJob, on_step: Callable[[str], None]) -> ExportedJob:
        """Export a job's model in a process of its own; a failure is in the findings."""
        if self._place is None:
            self._place = tempfile.TemporaryDirectory(prefix="favor-exports-")
        folder = Path(self._place.name) / _graph(job)
        self._make_room(keep=folder)
        folder.mkdir(exist_ok=True)
        asked = ExportJob(
            name=job.name,
            img_size=job.img_size,
            num_classes=job.num_classes,
            runtime=job.runtime,
            precision=job.precision,
            device=job.device,
            threads=job.threads,
            attention=job.attention,
            folder=str(folder),
            batch_size=job.batch_size,
            calibration=job.calibration,
            checkpoint=job.checkpoint,
            checkpoint_hash=job.checkpoint_hash,
            plugins=job.plugins,
        )
        findings = supervise(
            worker_command("favor.training.export_worker"),
            asked.to_json(),
            time_limit=TIME_LIMIT,
            on_step=on_step,
            environment=worker_environment(job.threads),
        )
        return ExportedJob(replace(job, exported=str(asked.manifest)), findings)

    def _make_room(self, keep: Path) -> None:
        by_age = sorted(keep.parent.iterdir(), key=lambda folder: folder.stat().st_mtime)
        sizes = {folder: sum(file.stat().st_size for file in folder.iterdir()) for folder in by_age}
        for folder in by_age:
            if sum(sizes.values()) <= MOST_BYTES:
                return
            if folder != keep:
                del sizes[folder]
                shutil.rmtree(folder)


def _graph(job: MeasureJob) -> str:
    """A name for the float graph of a job, which other runtimes and precisions share."""
    weights = (job.checkpoint, job.checkpoint_hash)
    parts = (job.name, job.img_size, job.num_classes, job.attention, weights, job.batch_size, job.plugins)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
