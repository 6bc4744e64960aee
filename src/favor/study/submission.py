"""Submissions of a study to a cluster, as files that the nodes share: what was submitted, and how far each job is.

Every file has one writer, so no locks are needed, which many parallel file systems lack. Imports no torch.
"""

import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from favor.atomic_file import write_whole
from favor.errors import RequestError, WorkError, one_line
from favor.records.store import FOLDER_NAME as RECORDS_FOLDER
from favor.regular_file import read_regular
from favor.study.allocation import Allocation, key_of

FOLDER_NAME = "cluster"
MOST_BYTES = 2**26
_NUMBER = r"^[0-9]{4,9}\Z"
_NAME = r"^favor-[A-Za-z0-9._-]{1,60}\Z"
Content = TypeVar("Content", bound=Struct)


class Submission(Struct, frozen=True, forbid_unknown_fields=True):
    """Allocations that were submitted together; each is a list of keys of jobs. Schedulers know them by `name`.

    `repeats` says that jobs with an earlier record are done again.
    """

    number: Annotated[str, Meta(pattern=_NUMBER)]
    name: Annotated[str, Meta(pattern=_NAME)]
    executor: Literal["slurm", "ray"]
    repeats: bool
    allocations: tuple[tuple[str, ...], ...]

    def folder_in(self, study: Path) -> Path:
        """The folder of its files."""
        return study / FOLDER_NAME / self.number

    def writer(self, index: int) -> str:
        """The name of an allocation's file of records: those of a later submission count as newer."""
        return f"{self.number}-{index:05d}"


class Progress(Struct, frozen=True, forbid_unknown_fields=True):
    """The progress of an allocation: its current job, node, start and step; or what stopped it."""

    node: str
    job: str = ""
    since: str = ""
    step: str = ""
    problem: str = ""


@dataclass(frozen=True)
class ProgressFile:
    """The progress of one allocation, replaced as a whole."""

    file: Path

    @classmethod
    def of(cls, study: Path, submission: Submission, index: int) -> "ProgressFile":
        return cls(submission.folder_in(study) / f"progress-{index:05d}.json")

    def write(self, progress: Progress) -> None:
        write_whole(self.file, msgspec.json.encode(progress))

    def read(self) -> Progress | None:
        """The progress in the file; None if the allocation has not started, or if its file is damaged."""
        try:
            return _read(self.file, Progress)
        except RequestError:
            return None


def new_submission(
    study: Path, executor: Literal["slurm", "ray"], allocations: Sequence[Allocation], repeats: bool
) -> Submission:
    """Record what is about to be submitted: if favor is killed now, the scheduler can still be asked for the name.

    Making the folder is atomic on every file system, so of two processes that submit at once, one is refused.
    """
    numbers = [*(int(submission.number) for submission in submissions_of(study)), *_numbers_in_records(study)]
    submission = Submission(
        number=f"{1 + max(numbers, default=0):04d}",
        name=f"favor-{re.sub(r'[^A-Za-z0-9._-]', '_', study.name)[:40]}-{secrets.token_hex(4)}",
        executor=executor,
        repeats=repeats,
        allocations=tuple(tuple(key_of(job) for job in allocation.jobs) for allocation in allocations),
    )
    folder = submission.folder_in(study)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError:
        raise RequestError(
            f"{study} is being submitted by another favor process; if that was killed, delete {folder} and submit again"
        ) from None
    except OSError as error:
        raise WorkError(f"{folder}: cannot write: {error.strerror}; nothing was submitted") from error
    try:
        write_whole(folder / "submission.json", msgspec.json.encode(submission))
    except WorkError:
        withdraw(study, submission)
        raise
    return submission


def _numbers_in_records(study: Path) -> Iterator[int]:
    """The submissions that have left records; such a number is not used again, even if the submission was deleted."""
    for file in (study / RECORDS_FOLDER).glob("*.jsonl"):
        number = file.name.partition("-")[0]
        if re.match(_NUMBER, number):
            yield int(number)


def withdraw(study: Path, submission: Submission) -> None:
    """Remove a submission that the scheduler did not take."""
    shutil.rmtree(submission.folder_in(study), ignore_errors=True)


def submissions_of(study: Path) -> tuple[Submission, ...]:
    """The submissions of a study, the oldest first."""
    folders = (study / FOLDER_NAME).glob("*") if (study / FOLDER_NAME).is_dir() else ()
    submissions = []
    for folder in sorted(folder for folder in folders if re.match(_NUMBER, folder.name)):
        file = folder / "submission.json"
        if not file.is_file():
            continue  # killed before anything was submitted
        submission = _read(file, Submission)
        if submission.number != folder.name:  # it says where the files of the submission are
            raise RequestError(f"{file} belongs to submission {submission.number}; restore it, or delete {folder}")
        submissions.append(submission)
    return tuple(submissions)


def _read(file: Path, kind: type[Content]) -> Content:
    """The content of a file that `write_whole` wrote."""
    try:
        return msgspec.json.decode(read_regular(file, MOST_BYTES), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"{file} was changed: {one_line(error)}; restore it, or delete {file.parent}") from error
