"""What records survive: `python benchmarks/kill_drill.py` prints the table of docs/reliability.md (about 3 minutes).

Writers are killed at random moments, many write at once, readers read beside them, clocks go backwards, the disk is
full. Each drill counts the records whose `append` had returned and that are not there (lost), those that are there
twice (doubled), and lines that are reported as corrupt.
"""

import argparse
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from msgspec.structs import replace

from favor.errors import WorkError
from favor.records.schema import CardFields, Record, reading
from favor.records.store import append, read
from favor.records.table import load

PROCESSES = multiprocessing.get_context("fork")
SMALL_DISK = 256 * 1024


@dataclass(frozen=True)
class Figures:
    """The result of a drill, with a note."""

    written: int
    lost: int
    doubled: int
    corrupt: int
    note: str


def a_record(writer: int, number: int) -> Record:
    """A record unique to its writer, padded so that a kill is likely to hit the middle of a write."""
    return Record(
        name=f"writer_{writer}",
        model=CardFields(),
        task="inference",
        source="measured",
        conditions={"number": number, "padding": "x" * 20_000},
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
def small_disk(folder: Path) -> Iterator[Path | None]:
    """A tmpfs of 256 KiB; None if this user may not mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(folder)]
    if sys.platform != "linux" or subprocess.run(command, check=False, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


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
    parser.add_argument("--records", type=int, default=100, help="of each writer")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)  # noqa: S311 - moments to kill at
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rows = {
            "SIGKILL": killed(root / "kill", arguments.kills, rng),
            "concurrent writers, one file": at_once(root / "one", 16, arguments.records, own_files=False),
            "concurrent writers, a file each": at_once(root / "own", 16, arguments.records, own_files=True),
            "readers beside writers": beside_readers(root / "read", 8, arguments.records),
            "clock set back": clock_set_back(root / "clock", 100),
        }
        with small_disk(root / "disk") as disk:
            if disk is not None:
                rows["disk full"] = disk_full(disk)
    print("| drill | written | lost | doubled | corrupt | |\n|---|---|---|---|---|---|")
    for name, figures in rows.items():
        print(
            f"| {name} | {figures.written} | {figures.lost} | {figures.doubled} | {figures.corrupt} | {figures.note} |"
        )
    if "disk full" not in rows:
        print("\nThe disk-full drill was left out: this user may not mount a tmpfs.")


if __name__ == "__main__":
    main()
