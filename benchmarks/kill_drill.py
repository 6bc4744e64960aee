"""What records survive: `python benchmarks/kill_drill.py` prints the table of docs/reliability.md (about 30 minutes).

Writers are killed at random moments, many write at once, readers read beside them, clocks go backwards, the disk is
full; a sweep of measurements is killed 100 times and a training run 20 times, and resumed until it is done. Each drill
counts the records that are missing although their `append` returned (lost), those that are there twice (doubled), and
lines that are reported as corrupt.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
from msgspec.structs import replace

from favor.errors import WorkError
from favor.records.schema import CardFields, Record, reading
from favor.records.store import append, read
from favor.records.table import load
from favor.text import plural

PROCESSES = multiprocessing.get_context("fork")
SMALL_DISK = 256 * 1024
SMALL_DISK_OF_TRAINING = 7 * 2**20  # one checkpoint of vit_xs4 and its optimizer state fit, two do not
TRAIN = (
    *("train", "vit_xs4", "--recipe", "laptop-digits", "--epochs", "6", "--set", "warmup_epochs=1"),
    *("--save-every", "1", "--workers", "0", "--threads", "1", "--resume", "--study"),
)
LONG_LINE = 16 * 2**20
"""Bytes that the system copies for a few milliseconds, long enough for a kill to come in between."""


@dataclass(frozen=True)
class Figures:
    """The result of a drill, with a note."""

    written: int
    lost: int
    doubled: int
    corrupt: int
    note: str


def a_record(writer: int, number: int, padding: int = 20_000) -> Record:
    """A record unique to its writer, as long as those with a trace of their operators."""
    return Record(
        name=f"writer_{writer}",
        model=CardFields(),
        task="inference",
        source="measured",
        conditions={"number": number, "padding": "x" * padding},
        metrics={"throughput": reading("throughput", number + 1.0, method="made up")},
    )


def killed(study: Path, times: int, rng: random.Random) -> Figures:
    """Writers are killed one after the other, each a moment after its first record."""
    acknowledged: list[tuple[str, int]] = []
    for writer in range(times):
        ours, theirs = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=_write_until_killed, args=(study, writer, theirs))
        process.start()
        theirs.close()
        ours.poll(60)
        time.sleep(rng.random() * 0.02)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        acknowledged += _received(ours)
    return _figures(study, acknowledged, f"{times} kills", unacknowledged=times)


def _write_until_killed(study: Path, writer: int, acknowledge: Connection) -> None:
    for number in range(1_000_000):
        append(study, [a_record(writer, number)])
        acknowledge.send((f"writer_{writer}", number))


def killed_in_a_line(study: Path, times: int, rng: random.Random) -> Figures:
    """Writers are killed while the system copies a long line of theirs into the file."""
    acknowledged: list[tuple[str, int]] = []
    for writer in range(times):
        ours, theirs = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=_write_a_long_line, args=(study, writer, theirs))
        process.start()
        theirs.close()
        acknowledged.append(ours.recv())
        ours.recv()
        time.sleep(rng.random() * 0.003)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        acknowledged += _received(ours)
    return _figures(study, acknowledged, f"{times} kills", unacknowledged=times)


def _write_a_long_line(study: Path, writer: int, acknowledge: Connection) -> None:
    append(study, [a_record(writer, 0)])
    acknowledge.send((f"writer_{writer}", 0))
    write = os.write

    def announced(descriptor: int, line: bytes) -> int:
        os.write = write  # the pipe writes too
        acknowledge.send("now")
        return write(descriptor, line)

    os.write = announced
    append(study, [a_record(writer, 1, LONG_LINE)])
    acknowledge.send((f"writer_{writer}", 1))
    time.sleep(60)  # until it is killed


def _received(connection: Connection) -> Iterator[tuple[str, int]]:
    try:
        while connection.poll():
            yield connection.recv()
    except EOFError:
        return


def at_once(study: Path, writers: int, records: int, *, own_files: bool) -> Figures:
    """Many processes append at the same time, to one file or each to its own."""
    _join([_start(_write, study, writer, records, own_files) for writer in range(writers)])
    expected = [(f"writer_{writer}", number) for writer in range(writers) for number in range(records)]
    return _figures(study, expected, f"{writers} writers, {'a file each' if own_files else 'one file'}")


def _write(study: Path, writer: int, records: int, own_files: bool) -> None:
    for number in range(records):
        append(study, [a_record(writer, number)], writer=f"{writer:04d}" if own_files else None)


def _start(target: Callable[..., None], *arguments: object) -> multiprocessing.process.BaseProcess:
    process = PROCESSES.Process(target=target, args=arguments)
    process.start()
    return process


def _join(processes: list[multiprocessing.process.BaseProcess]) -> None:
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a process of the drill ended with {process.exitcode}")


def beside_readers(study: Path, writers: int, records: int) -> Figures:
    """Two readers read again and again while others write."""
    append(study, [a_record(-1, 0)])
    processes = [_start(_write, study, writer, records, False) for writer in range(writers)]
    ours, theirs = PROCESSES.Pipe(duplex=False)
    readers = [_start(_read_while_growing, study, writers * records + 1, theirs) for _ in range(2)]
    _join([*processes, *readers])
    reads, torn, corrupt = (sum(counts) for counts in zip(*(ours.recv() for _ in readers), strict=True))
    expected = [(f"writer_{writer}", number) for writer in range(writers) for number in range(records)]
    note = f"{writers} writers, {reads} reads, {torn} of them met an unfinished last line, {corrupt} a corrupt one"
    figures = _figures(study, [("writer_-1", 0), *expected], note)
    return Figures(figures.written, figures.lost, figures.doubled, figures.corrupt + corrupt, figures.note)


def _read_while_growing(study: Path, most: int, report: Connection) -> None:
    reads = torn = corrupt = seen = 0
    while seen < most:
        result = read(study)
        if len(result.records) < seen:
            raise RuntimeError("a record that was there is gone")
        seen, reads = len(result.records), reads + 1
        kinds = {problem.kind for problem in result.problems}
        torn, corrupt = torn + ("torn" in kinds), corrupt + ("corrupt" in kinds)
    report.send((reads, torn, corrupt))


def clock_set_back(study: Path, times: int) -> Figures:
    """The same thing is measured repeatedly while the clock runs backwards: the last measurement counts."""
    older = 0
    for number in range(times):
        moment = f"2026-11-15T{23 - number // 60:02d}:{59 - number % 60:02d}:00Z"
        metrics = {"throughput": reading("throughput", number + 1.0, method="made up")}
        append(study, [replace(a_record(0, 0), metrics=metrics, time=moment)])
        older += load(study)["throughput"].tolist() != [number + 1.0]
    result = read(study)
    return Figures(
        times, times - len(result.records), 0, len(result.problems), f"an older value was taken {older} times"
    )


def disk_full(study: Path) -> Figures:
    """A disk of 256 KiB fills up, is freed, and fills up again."""
    done: list[tuple[str, int]] = []
    refusals = []
    for attempt, share in enumerate((2, 8)):
        ballast = study / "ballast"
        ballast.write_bytes(b"x" * (SMALL_DISK // share))
        for number in range(100):
            try:
                append(study, [a_record(attempt, number)])
            except WorkError as error:
                refusals.append(str(error))
                break
            done.append((f"writer_{attempt}", number))
        ballast.unlink()
        append(study, [a_record(9, attempt)])
        done.append(("writer_9", attempt))
    torn = len(read(study).problems)
    return _figures(study, done, f"{len(refusals)} appends refused in one line, {torn} torn lines left", damaged=torn)


@contextmanager
def small_disk(folder: Path, size: int = SMALL_DISK) -> Iterator[Path | None]:
    """A tmpfs of so many bytes; None if this user may not mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if sys.platform != "linux" or subprocess.run(command, check=False, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


def killed_sweeps(folder: Path, jobs: int, kills: int, rng: random.Random) -> Figures:
    """`favor measure` is killed with all its processes, and started again, until its jobs are done; then the next one.

    Every second kill comes some seconds after the start, the others some seconds after the next record. A record is
    lost if a later run of the command does not find it, doubled if its job was done twice.
    """
    sizes = [32 + 4 * number for number in range(jobs)]
    options = [word for size in sizes for word in ("--img-size", str(size))]
    command = ["measure", "vit_xs4", *options, "--batch-size", "1", "--budget", "0.1", "--study"]
    done = after_some = sweeps = written = lost = doubled = torn = 0
    while done < kills:
        study = folder / str(sweeps)
        seen = 0
        while True:
            first = (lambda study=study, seen=seen: len(_measured(study)) > seen) if done % 2 else None
            if _ends([*command, str(study)], rng.uniform(0, 12) if done < kills else None, first):
                break
            done += 1
            there = len(_measured(study))
            lost, seen, after_some = lost + max(0, seen - there), there, after_some + (there > 0)
        records = _measured(study)
        sweeps, written, lost = sweeps + 1, written + len(records), lost + len(set(sizes) - set(records))
        doubled += sum(count > 1 for count in records.values())
        torn += len(read(study).problems)
    kills_of_sweeps = f"{done} kills in {plural(sweeps, 'sweep')} of {jobs} jobs"
    note = f"{kills_of_sweeps}, {after_some} of them after at least one record; {torn} torn lines"
    return Figures(written, lost, doubled, 0, note)


def _measured(study: Path) -> Counter[object]:
    """How many records each image size has."""
    records = read(study).records if (study / "records.jsonl").exists() else ()
    done = [record for record in records if record.status == "ok" and record.task == "inference"]
    return Counter(record.conditions["img_size"] for record in done)


def killed_training(folder: Path, kills: int, rng: random.Random, whole: Path) -> Figures:
    """`favor train` is killed with all its processes, and resumed, until it is done; its weights are then compared."""
    done = 0
    while not _ends([*TRAIN, str(folder)], rng.uniform(5, 20) if done < kills else None):
        done += 1
    return _trained(folder, whole, f"{done} kills")


def training_on_full_disk(folder: Path, whole: Path) -> Figures:
    """A checkpoint does not fit on the disk; the training ends, gets more space and is resumed."""
    command = [sys.executable, "-m", "favor", *TRAIN, str(folder / "study")]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    refusals = [line for line in ended.stderr.splitlines() if "No space left on device" in line]
    subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)  # noqa: S607
    _ends([*TRAIN, str(folder / "study")], None)
    return _trained(folder / "study", whole, f"exit code {ended.returncode}, {len(refusals)} line that says why")


def _trained(study: Path, whole: Path, note: str) -> Figures:
    """The records of a disturbed training, and whether its weights are those of an undisturbed one."""
    last = [sorted((folder / "runs").glob("*/step-*[0-9].safetensors"))[-1] for folder in (study, whole)]
    same = tensors_of(last[0]) == tensors_of(last[1])
    epochs = Counter(record.conditions["epochs"] for record in read(study).records if record.status == "ok")
    compared = "bit-identical to" if same else "NOT those of"
    return Figures(
        written=epochs.total(),
        lost=6 - len(epochs),
        doubled=sum(count > 1 for count in epochs.values()),
        corrupt=0,
        note=f"6 epochs, {note}; the final weights are {compared} an uninterrupted run",
    )


def tensors_of(checkpoint: Path) -> dict[str, bytes]:
    """The bytes of each tensor in a checkpoint, without the times and names that every run writes anew."""
    content = checkpoint.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    body = content[8 + length :]
    return {name: body[slice(*entry["data_offsets"])] for name, entry in header.items()}


def _ends(command: Sequence[str], after: float | None, first: Callable[[], bool] | None = None) -> bool:
    """Run favor in a session of its own, killed with all its processes after so many seconds; whether it ended.

    The seconds begin when `first` is true.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "favor", *command],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    while first is not None and after is not None and process.poll() is None and not first():
        time.sleep(0.1)
    try:
        _, said = process.communicate(timeout=after)
    except subprocess.TimeoutExpired:
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.communicate()
        return False
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {said.decode()[-500:]}")
    return True


def _figures(
    study: Path, expected: list[tuple[str, int]], note: str, *, unacknowledged: int = 0, damaged: int = 0
) -> Figures:
    """Compare a study with the records whose `append` returned; `unacknowledged` and `damaged` lines are allowed."""
    result = read(study)
    there = Counter((record.name, record.conditions["number"]) for record in result.records)
    extra = len(there.keys() - set(expected))
    if extra > unacknowledged:
        raise RuntimeError(f"{extra} records that nobody wrote")
    if unacknowledged:  # a writer that was killed in the middle of a line leaves one damaged line
        damaged = min(unacknowledged, len(result.problems))
        note += f", {damaged} of them in the middle of a line"
    return Figures(
        written=len(expected),
        lost=sum(key not in there for key in expected),
        doubled=sum(count > 1 for count in there.values()),
        corrupt=len(result.problems) - damaged,
        note=note,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--training-kills", type=int, default=20)
    parser.add_argument("--records", type=int, default=100, help="of each writer")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)  # noqa: S311 - moments to kill at
    print("| drill | written | lost | duplicate | corrupt | |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _tell("SIGKILL", killed(root / "kill", arguments.kills, rng))
        _tell("SIGKILL in a long line", killed_in_a_line(root / "line", arguments.kills // 5, rng))
        _tell("concurrent writers, one file", at_once(root / "one", 16, arguments.records, own_files=False))
        _tell("concurrent writers, a file each", at_once(root / "own", 16, arguments.records, own_files=True))
        _tell("readers beside writers", beside_readers(root / "read", 8, arguments.records))
        _tell("clock set back", clock_set_back(root / "clock", 100))
        whole = root / "whole"
        _ends([*TRAIN, str(whole)], None)
        for name, size, drill in (
            ("disk full", SMALL_DISK, disk_full),
            ("disk full during training", SMALL_DISK_OF_TRAINING, partial(training_on_full_disk, whole=whole)),
        ):
            with small_disk(root / name.replace(" ", "-"), size) as disk:
                if disk is None:
                    print(f"| {name} | | | | | left out: this user may not mount a tmpfs |", flush=True)
                else:
                    _tell(name, drill(disk))
        _tell("SIGKILL of a training run", killed_training(root / "training", arguments.training_kills, rng, whole))
        _tell("SIGKILL of a sweep", killed_sweeps(root / "sweep", 20, arguments.kills, rng))


def _tell(drill: str, done: Figures) -> None:
    print(f"| {drill} | {done.written} | {done.lost} | {done.doubled} | {done.corrupt} | {done.note} |", flush=True)


if __name__ == "__main__":
    main()
