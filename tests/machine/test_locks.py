"""Locks in folders that come from somebody else."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from favor.errors import RequestError
from favor.machine.locks import device_lock, is_locked, locked, measuring


def test_a_link_where_the_holder_is_written_is_replaced_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / ".lock.holder").symlink_to(precious)
    with locked(tmp_path / "study" / ".lock", "taken by {holder}", ""):
        assert precious.read_text() == "mine"
        with (
            pytest.raises(RequestError, match=f"taken by process {os.getpid()} since"),
            locked(tmp_path / "study" / ".lock", "taken by {holder}", ""),
        ):
            pass


def test_a_pipe_where_the_holder_is_written_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock.holder")
    with locked(tmp_path / ".lock", "taken by {holder}", ""):
        (tmp_path / ".lock.holder").unlink()
        os.mkfifo(tmp_path / ".lock.holder")
        with (
            pytest.raises(RequestError, match="taken by another process"),
            locked(tmp_path / ".lock", "taken by {holder}", ""),
        ):
            pass


def test_a_folder_with_braces_in_its_name_can_be_taken(tmp_path: Path) -> None:
    file = tmp_path / "{keep}" / ".lock"
    with (
        locked(file, f"{file.parent} is taken by {{holder}}", ""),
        pytest.raises(RequestError, match=f"keep}} is taken by process {os.getpid()} since"),
        locked(file, f"{file.parent} is taken by {{holder}}", ""),
    ):
        pass


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write everything; any other user is bound by permissions as they are."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_lock_can_be_looked_at_in_a_folder_that_is_read_only() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folder is closed to other users
        file = Path(folder) / ".lock"
        with locked(file, "taken by {holder}", ""):
            file.chmod(0o444)
            Path(folder).chmod(0o555)
            with as_nobody():
                assert is_locked(file)
        with as_nobody():
            assert not is_locked(file)
            assert not is_locked(file.with_name("no lock"))
        Path(folder).chmod(0o755)


def test_two_that_look_at_a_lock_do_not_take_each_other_for_its_holder(tmp_path: Path) -> None:
    file = tmp_path / ".lock"
    with locked(file, "taken by {holder}", ""):
        pass
    with file.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not is_locked(file)


def test_a_device_whose_lock_file_is_damaged_is_one_line() -> None:
    device_lock("cpu").write_bytes(b"no database" * 1000)
    with (
        pytest.raises(RequestError, match="cpu.lock: cannot be locked: .*; delete this file"),
        measuring("cpu", None, False),
    ):
        pass
