"""A study's folder: its requests, and the lock of the process that works in it. Imports no torch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from pydantic import ValidationError

from favor.atomic_file import write_whole
from favor.errors import RequestError, path_text
from favor.machine import locks
from favor.records.schema import EAGER
from favor.records.store import FILE_NAME, has_records
from favor.study.resolved import ResolvedStudy, content_hash
from favor.version import __version__
from favor.yaml_file import MOST_BYTES, YamlFile

REQUEST_FILE = "study.yaml"
LOCK_FILE = ".lock"
PAGE_FILE = "report.html"
FORMAT = 2
STUDY_FILES = 4
"""The folder's file may be as long as this many study files: 64 requests of 200 models each, read in 4 s."""

_HEAD = """\
# The requests of this study, written by favor {version}. `favor resume {folder}` continues it.
# To add requests, run `favor measure` or `favor train` with --study and this folder.
"""
_REMEDY = "restore it, or start a new study in another folder"


def save_requests(folder: Path, studies: Sequence[ResolvedStudy]) -> None:
    """Save the requests in the folder, all of them or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    requests = [{"hash": study.hash(), **study.to_data()} for study in studies]
    content = yaml.safe_dump({"format": FORMAT, "requests": requests}, sort_keys=False, width=120)
    text = _HEAD.format(version=__version__, folder=folder.name) + content
    if len(text) > STUDY_FILES * MOST_BYTES:
        raise RequestError(f"{folder}: {len(studies)} requests are too long for one study; choose another --study")
    write_whole(folder / REQUEST_FILE, text.encode())


def saved_requests(folder: Path) -> tuple[ResolvedStudy, ...]:
    """The requests of a folder; empty if it only has records, such as imported ones.

    A file that favor did not write, or that was edited, is refused with the reason.
    """
    file = folder / REQUEST_FILE
    if not file.is_file():
        if has_records(folder):
            return ()
        what = (
            f"the folder has neither {REQUEST_FILE} nor {FILE_NAME}" if folder.is_dir() else "there is no such folder"
        )
        raise RequestError(f"{folder} is not a study: {what}; `favor run --study {folder}` starts one")
    source = YamlFile.read(file, STUDY_FILES)
    content = source.content
    requests = content.get("requests") if isinstance(content, dict) and content.get("format") == FORMAT else None
    if not isinstance(requests, tuple):
        raise RequestError(f"{file} was not written by this version of favor: it has no `format: {FORMAT}`")
    return tuple(_checked(request, number, source) for number, request in enumerate(requests))


def _checked(request: object, number: int, source: YamlFile) -> ResolvedStudy:
    content = dict(request) if isinstance(request, dict) else {}
    saved_hash = content.pop("hash", None)
    try:
        study = ResolvedStudy.model_validate(_with_runtimes(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = f"{source.place}:{source.line(('requests', number, *first['loc']))}"
        raise RequestError(f"{where} was changed: {path_text(first['loc'])}: {first['msg']}; {_REMEDY}") from error
    # The hash covers the keys in the file: an earlier version had fewer.
    if content_hash(content) != saved_hash:
        raise RequestError(f"{source.place} was changed since the study began; {_REMEDY}")
    return study


def _with_runtimes(content: dict[str, object]) -> dict[str, object]:
    """The request with the runtime that `compile` stood for in folders of earlier versions."""
    if "compile" not in content:
        return content
    kept = {key: value for key, value in content.items() if key != "compile"}
    return {"runtimes": ("compile",) if content["compile"] else (EAGER,), **kept}


def has_requests(folder: Path) -> bool:
    """Whether the folder has a file of requests."""
    return (folder / REQUEST_FILE).is_file()


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Keep other processes from working in the folder."""
    taken = f"{folder} is in use by another favor ({{holder}}); wait for it with --wait, or choose another --study"
    with locks.locked(folder / LOCK_FILE, taken, "", wait):
        yield


def is_at_work(folder: Path) -> bool:
    """Whether a process is working in the folder right now."""
    return locks.is_locked(folder / LOCK_FILE)
