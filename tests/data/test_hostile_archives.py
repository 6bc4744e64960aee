"""Archives that were made to hang, to crash or to fill the memory: refused in one line, before they are unpacked."""

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from favor.data.archive import TarHeader, unpacked
from favor.data.shards import open_shards
from favor.errors import RequestError
from hostile.attacks import TARS, bomb_in_zip, extended_header, member, pax_line
from hostile.harness import read_alone


def test_a_bomb_in_a_codec_whose_output_cannot_be_limited_is_refused_before_it_is_unpacked() -> None:
    outcome, told = read_alone(
        lambda into: (into / "set.zip").write_bytes(bomb_in_zip()), lambda folder: unpacked(folder / "set.zip")
    )
    assert outcome == "refused", told
    assert "'set/train/a/0.png' is compressed with another method than deflate" in told


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_file_is_unpacked_if_it_is_stored_or_deflated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with zipfile.ZipFile(tmp_path / "set.zip", "w", method) as content:
        content.writestr("a/0.png", b"one")
        content.writestr("b/0.png", b"two")
    if method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        assert (unpacked(tmp_path / "set.zip") / "b" / "0.png").read_bytes() == b"two"
    else:
        with pytest.raises(RequestError, match="another method than deflate"):
            unpacked(tmp_path / "set.zip")


@pytest.mark.parametrize("attack", TARS.values(), ids=TARS.keys())
def test_a_tar_file_that_python_reads_badly_is_refused(attack: bytes) -> None:
    outcome, told = read_alone(
        lambda into: (into / "set.tar").write_bytes(attack), lambda folder: unpacked(folder / "set.tar"), 4.0, 100
    )
    assert outcome == "refused", told


@pytest.mark.parametrize("attack", TARS.values(), ids=TARS.keys())
def test_a_shard_that_python_reads_badly_is_refused(attack: bytes) -> None:
    def write(into: Path) -> None:
        for split in ("train", "val"):
            (into / f"{split}-0.tar").write_bytes(attack)

    outcome, told = read_alone(write, open_shards, 4.0, 100)
    assert outcome == "refused", told


def test_extended_headers_give_names_and_sizes_and_those_for_all_members_give_nothing(tmp_path: Path) -> None:
    content = (
        extended_header(pax_line("size", "0") + pax_line("path", "all"), b"g")
        + extended_header(pax_line("mtime", "1.5") + pax_line("path", "é" * 90) + pax_line("size", "513"))
        + bytes(member("short", 0)[:512])
        + b"x" * 513
        + bytes(511)
        + member("b", 3)
        + bytes(1024)
    )
    (tmp_path / "a.tar").write_bytes(content)
    with tarfile.open(tmp_path / "a.tar", "r:", tarinfo=TarHeader) as tar:
        assert [(one.name, one.size) for one in tar] == [("é" * 90, 513), ("b", 3)]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_python_writes_is_read_as_python_reads_it(tmp_path: Path, form: int) -> None:
    rng = np.random.default_rng(0)
    with tarfile.open(tmp_path / "a.tar", "w", format=form, pax_headers={"comment": "of all"}) as tar:
        for number in range(40):
            name = f"{number}/" + "ä" * int(rng.integers(1, 45 if form == tarfile.USTAR_FORMAT else 120))
            info = tarfile.TarInfo(name)
            info.size, info.mtime = int(rng.integers(0, 2000)), 1.5
            if form == tarfile.USTAR_FORMAT:
                info.mtime = 1
            tar.addfile(info, io.BytesIO(rng.bytes(info.size)))
    with tarfile.open(tmp_path / "a.tar") as theirs, tarfile.open(tmp_path / "a.tar", tarinfo=TarHeader) as ours:
        expected = [(one.name, one.size, one.offset_data, one.type) for one in theirs]
        assert [(one.name, one.size, one.offset_data, one.type) for one in ours] == expected
        assert len(expected) == 40
