"""The process that trains a model of a study: started, listened to, and its end put down where it did not do so."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from favor.machine.messages import one_line
from favor.records.schema import CardFields, Record, Status, timestamp
from favor.study.progress import records_of
from favor.study.schema import Stage
from favor.study.train_jobs import TrainJob, final_record, is_of, stage_arguments, stage_conditions
from favor.zoo.registry import card

COMMAND = (sys.executable, "-P", "-m", "favor.cli.leashed")


def train(job: TrainJob, folder: Path, on_step: Callable[[str], None]) -> tuple[Record, ...]:
    """Train a model, stage by stage, going on where it stopped.

    `favor train` writes the records; what is handed over is the failure that it could not write itself.
    """
    for stage in job.stages:
        records = records_of(folder)
        if final_record(job, stage, records) is not None:
            continue
        on_step(f"{stage.recipe} on {stage.data}")
        code, last_words = _run(stage_arguments(job, stage, folder, records), job.threads, on_step)
        after = records_of(folder)
        if final_record(job, stage, after) is not None:
            continue
        new = after[len(records) :]
        if code == 0 or any(is_of(job, stage, record) and record.status != "ok" for record in new):
            return ()
        return (_failure(job, stage, code, last_words),)
    return ()


def _run(words: list[str], threads: int, on_step: Callable[[str], None]) -> tuple[int, str]:
    """Run a command to its end; its exit code and the last line that it said."""
    process = subprocess.Popen(
        [*COMMAND, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
    )
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    last = ""
    try:
        for line in process.stderr:
            if line.strip():
                last = one_line(line)
                on_step(last)
        return process.wait(), last
    finally:
        # Ctrl-C comes here too: a training that is told to stop keeps a checkpoint.
        if process.poll() is None:
            process.terminate()
            process.wait()


def _failure(job: TrainJob, stage: Stage, code: int, last_words: str) -> Record:
    killed = code == -signal.SIGKILL
    status: Status = "out_of_memory" if killed else "failed"
    how = "killed by the system, most likely for its memory" if killed else f"ended with exit code {code}"
    said = f"; its last words: {last_words}" if last_words else ""
    return Record(
        name=job.name,
        model=CardFields.of(card(job.name)),
        task="accuracy",
        source="measured",
        conditions={"dataset": str(stage.data).partition(":")[0]} | stage_conditions(stage, job.seed),
        status=status,
        reason=one_line(f"training: {how}{said}"),
        time=timestamp(),
    )
