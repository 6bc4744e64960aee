"""The top-level help, the shell's completion, and what becomes of old spellings."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from favor.cli import app
from favor.cli.door import GROUPS, OLD_COMMANDS, OLD_OPTIONS, Door
from favor.errors import RequestError

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def test_every_command_is_in_one_group_of_the_help() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)


def test_help_shows_the_groups_and_a_whole_sentence_for_each_command() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    places = [shown.index(f"\n{title}:") for title in GROUPS]
    assert places == sorted(places)
    assert "..." not in shown.replace("[ARGS]...", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_s_first_line_is_a_sentence(name: str) -> None:
    first = COMMANDS[name].get_short_help_str(limit=300)
    assert first[0].isupper()
    assert len(first) < 150


NEW = typer.Typer(cls=Door)
"""The commands as they are once all old options are gone."""


@NEW.command()
def work(
    study: Annotated[str, typer.Option()] = "",
    device: Annotated[str, typer.Option()] = "",
    repeat: Annotated[str, typer.Option()] = "",
    phase: Annotated[str, typer.Option()] = "",
    log: Annotated[str, typer.Option()] = "",
    runtime: Annotated[str, typer.Option()] = "",
) -> None:
    pass


@NEW.command()
def rest(
    on: Annotated[str, typer.Option("--on")] = "", words: Annotated[list[str] | None, typer.Argument()] = None
) -> None:
    pass


@pytest.mark.parametrize("old", OLD_OPTIONS)
@pytest.mark.parametrize("ending", ["", "=mine"])
def test_an_old_option_names_the_new_one(old: str, ending: str) -> None:
    result = CliRunner().invoke(NEW, ["work", old + ending])
    assert isinstance(result.exception, RequestError)
    assert str(result.exception) == f"{old} is now {OLD_OPTIONS[old][1]}"


@pytest.mark.parametrize("words", [["--on", "x"], ["--", "--into"]])
def test_an_option_that_a_command_has_and_a_word_that_is_not_an_option_are_taken_as_they_are(words: list[str]) -> None:
    assert CliRunner().invoke(NEW, ["rest", *words]).exit_code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["simulate", "vit_s16", "--on", "a100"], "--on is now --device NAME"),
        (["simulate", "vit_s16", "--device", "a100", "--into", "x"], "--into is now --study DIR"),
        (["import", "timm", "results-imagenet.csv", "--into", "x"], "--into is now --study DIR"),
        (["report", "--study", "x"], "favor report takes the study without an option: favor report DIR"),
        (["status", "--study=x"], "favor status takes the study without an option: favor status DIR"),
        (["export", "x", "--csv"], f"`favor export` is now `favor {OLD_COMMANDS['export']}`"),
    ],
)
def test_what_was_renamed_says_so(words: list[str], told: str) -> None:
    assert str(CliRunner().invoke(app, words).exception) == told


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("favor rec", ["recommend"]),
        ("favor show linformer_s", ["linformer_s16"]),
        ("favor simulate vit_s16 --device rtx3", ["rtx3090"]),
        ("favor table --par", ["--parquet"]),
    ],
)
def test_the_shell_completes_commands_options_models_and_devices(words: str, offered: list[str]) -> None:
    asked = {"_FAVOR_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    command = [sys.executable, "-m", "favor"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=False)
    assert done.stdout.split() == offered


def test_completion_is_installed_into_the_home_of_the_user(tmp_path: Path) -> None:
    command = ["/bin/bash", "-c", f"{sys.executable} -m favor --install-completion; true"]
    done = subprocess.run(
        command, env=os.environ | {"HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert "completion installed" in done.stdout, done.stderr
    assert "_FAVOR_COMPLETE" in (tmp_path / ".bash_completions" / "favor.sh").read_text()
