"""What a newcomer reads first is true: the table of the zoo, the commands, the links."""

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer.main

from favor.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import make_readme
    finally:
        sys.path.pop(0)
    return make_readme


def test_the_table_of_the_zoo_is_what_its_command_makes(maker: ModuleType) -> None:
    table = maker.zoo_table()
    assert maker.with_table(README, table) == README, "run python benchmarks/make_readme.py --table"
    assert len(table.splitlines()) > 50


def test_a_readme_without_a_place_for_the_table_is_refused(maker: ModuleType) -> None:
    with pytest.raises(maker.WorkError, match="has no place for the table"):
        maker.with_table("# favor\n", "| a |")


def commands() -> list[list[str]]:
    shown = re.findall(r"^\$ favor (.*)$", README, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in shown]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_that_is_shown_is_understood(words: list[str]) -> None:
    group = typer.main.get_command(app)
    command = group.get_command(None, words[0])
    assert command is not None, f"there is no favor {words[0]}"
    # Parses names and options, and runs nothing; a wrong option raises.
    command.make_context(words[0], words[1:])


def test_more_than_ten_commands_are_shown() -> None:
    assert len(commands()) > 10


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?://)([^)#]+)", README)
    assert len(targets) > 10
    assert [target for target in targets if not (ROOT / target).exists()] == []
