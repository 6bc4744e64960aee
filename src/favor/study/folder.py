"""A study's folder: what it was asked for so far, and who is working in it. Imports no torch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from pydantic import ValidationError

from favor.errors import RequestError, path_text
from favor.machine import locks
from favor.records.store import FILE_NAME, has_records
from favor.study.resolved import ResolvedStudy
from favor.version import __version__
from favor.yaml_file import YamlFile

REQUEST_FILE = "study.yaml"
LOCK_FILE = ".lock"
PAGE_FILE = "report.html"
FORMAT = 2
MOST_REQUESTS = 64
"""A request may be as large as a study file, and a folder holds several; small ones may be many more."""

_HEAD = """\
# What was asked for in this folder, written by favor {version}. `favor resume {folder}` goes on from here.
# To ask for more, call `favor measure` or `favor train` with --study and this folder.
"""
_REMEDY = "put it back, or begin another study in a folder of its own"


def save_requests(folder: Path, studies: Sequence[ResolvedStudy]) -> None:
    """Keep what is asked for in the folder, all of it or nothing."""
    from favor.records.export import write_whole  # it brings pandas, which `favor status` has no use for

    folder.mkdir(parents=True, exist_ok=True)
    requests = [{"hash": study.hash(), **study.to_data()} for study in studies]
    content = yaml.safe_dump({"format": FORMAT, "requests": requests}, sort_keys=False, width=120)
    head = _HEAD.format(version=__version__, folder=folder.name)
    write_whole(folder / REQUEST_FILE, (head + content).encode())


def saved_requests(folder: Path) -> tuple[ResolvedStudy, ...]:
    """What was asked for in the folder so far; empty where it only has records, such as imported ones.

    A file that is foreign or was changed is refused with the reason.
    """
    file = folder / REQUEST_FILE
    if not file.is_file():
        if has_records(folder):
            return ()
        what = (
            f"the folder has neither {REQUEST_FILE} nor {FILE_NAME}" if folder.is_dir() else "there is no such folder"
        )
        raise RequestError(f"{folder} is not a study: {what}; `favor run --study {folder}` starts one")
    source = YamlFile.read(file, MOST_REQUESTS)
    content = source.content
    requests = content.get("requests") if isinstance(content, dict) and content.get("format") == FORMAT else None
    if not isinstance(requests, tuple):
        raise RequestError(f"{file} was not written by this version of favor: it has no `format: {FORMAT}`")
    return tuple(_checked(request, number, source) for number, request in enumerate(requests))


def _checked(request: object, number: int, source: YamlFile) -> ResolvedStudy:
    asked = dict(request) if isinstance(request, dict) else {}
    saved_hash = asked.pop("hash", None)
    try:
        study = ResolvedStudy.model_validate(asked)
    except ValidationError as error:
        first = error.errors()[0]
        where = f"{source.place}:{source.line(('requests', number, *first['loc']))}"
        raise RequestError(f"{where} was changed: {path_text(first['loc'])}: {first['msg']}; {_REMEDY}") from error
    if study.hash() != saved_hash:
        raise RequestError(f"{source.place} was changed since the study began; {_REMEDY}")
    return study


def has_requests(folder: Path) -> bool:
    """Whether something was asked for in the folder."""
    return (folder / REQUEST_FILE).is_file()


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Keep other processes from working in the folder."""
    taken = f"{folder}: another favor ({{holder}}) is at work there; --wait waits for it, another --study does not"
    with locks.locked(folder / LOCK_FILE, taken, "", wait):
        yield


def is_at_work(folder: Path) -> bool:
    """Whether a process is working in the folder right now."""
    return locks.is_locked(folder / LOCK_FILE)
