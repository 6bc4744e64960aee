"""Files that favor writes are whole, whenever it is killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from favor.atomic_file import write_whole


def test_a_file_is_on_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "out.json"
    file.write_bytes(b"old")
    seen: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append(file.read_bytes()))
    write_whole(file, b"new")
    assert (seen, file.read_bytes()) == ([b"old"], b"new")
    assert list(tmp_path.iterdir()) == [file]


def test_what_writes_the_files_of_a_study_starts_without_pandas() -> None:
    code = (
        "import sys, favor.study.folder, favor.study.submission, favor.study.executor_file; "
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
