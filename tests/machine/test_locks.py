"""Locks in folders that come from somebody else."""

import os
from pathlib import Path

import pytest

from favor.errors import RequestError
from favor.machine.locks import locked


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
