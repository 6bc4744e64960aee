"""The limits of archives: names that no file system takes, and the variable that lifts the limits on size."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from favor.data.archive import ALLOW_LARGE, unpacked
from favor.errors import RequestError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_folder_name_that_no_file_system_takes_is_the_archives_fault(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        member = tarfile.TarInfo("x" * 300 + "/0.png")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"0"))
    with pytest.raises(RequestError, match="refused"):
        unpacked(tmp_path / "a.tar")


@pytest.mark.parametrize("value", ["", "0"])
def test_only_a_true_value_lifts_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(ALLOW_LARGE, value)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("a/0.png", bytes(150 * 10**6))
    with pytest.raises(RequestError, match=f"set {ALLOW_LARGE}=1"):
        unpacked(tmp_path / "bomb.zip")
