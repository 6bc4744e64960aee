"""A study's folder: what it was asked for, and who is working in it. Imports no torch."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import yaml
from pydantic import ValidationError

from favor.errors import RequestError, path_text
from favor.study.resolved import ResolvedStudy
from favor.version import __version__
from favor.yaml_file import YamlFile

REQUEST_FILE = "study.yaml"
LOCK_FILE = ".lock"
PAGE_FILE = "report.html"
FORMAT = 1
LOCK_ATTEMPTS = 5

_HEAD = """\
# What this folder's study was asked for, written by favor {version}. `favor resume {folder}` goes on from here.
# To ask for something else, write a study file and give it a folder of its own.
"""


def save_request(folder: Path, study: ResolvedStudy) -> None:
    """Keep what is asked for in the folder, all of it or nothing."""
    from favor.records.export import write_whole  # it brings pandas, which `favor status` has no use for

    folder.mkdir(parents=True, exist_ok=True)
    content = yaml.safe_dump({"format": FORMAT, "hash": study.hash(), **study.to_data()}, sort_keys=False, width=120)
    head = _HEAD.format(version=__version__, folder=folder.name)
    write_whole(folder / REQUEST_FILE, (head + content).encode())


def saved_request(folder: Path) -> ResolvedStudy:
    """What the folder's study was asked for; a file that is missing, foreign or changed is refused with the reason."""
    file = folder / REQUEST_FILE
    if not file.is_file():
        what = f"it has no {REQUEST_FILE}" if folder.is_dir() else "there is no such folder"
        raise RequestError(
            f"{folder} is no study that `favor run` began: {what}; `favor run --out {folder}` begins one"
        )
    source = YamlFile.read(file)
    content = source.content
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise RequestError(f"{file} was not written by `favor run`: it has no `format: {FORMAT}`")
    asked = {key: value for key, value in content.items() if key not in ("format", "hash")}
    try:
        study = ResolvedStudy.model_validate(asked)
    except ValidationError as error:
        first = error.errors()[0]
        where = f"{file}:{source.line(first['loc'])}"
        raise RequestError(f"{where} was changed: {path_text(first['loc'])}: {first['msg']}; {_REMEDY}") from error
    if study.hash() != content.get("hash"):
        raise RequestError(f"{file} was changed since the study began; {_REMEDY}")
    return study


_REMEDY = "put it back, or begin another study in a folder of its own"


def has_request(folder: Path) -> bool:
    """Whether a study was begun in the folder."""
    return (folder / REQUEST_FILE).is_file()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep others from working in the folder. The lock is the system's: a killed process does not leave it behind."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = (folder / LOCK_FILE).open("a+")
    except OSError as error:
        raise RequestError(f"{folder}: cannot be written to: {error.strerror}; choose another --out") from error
    with opened as file:
        if not _lock(file):
            file.seek(0)
            who = file.read().strip() or "unknown"
            raise RequestError(
                f"{folder}: another favor (process {who}) is at work there; wait for it, or choose another --out"
            )
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _lock(file: IO[str]) -> bool:
    """Take the lock; False if another one keeps it. One that only looks (`favor status`) has it for an instant."""
    for attempt in range(LOCK_ATTEMPTS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05 if attempt + 1 < LOCK_ATTEMPTS else 0.0)
        else:
            return True
    return False


def is_at_work(folder: Path) -> bool:
    """Whether a process is working in the folder right now."""
    try:
        with (folder / LOCK_FILE).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
