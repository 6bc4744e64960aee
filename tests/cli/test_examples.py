"""The examples below every command's help: each is a command that can be copied."""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from favor.cli import app
from favor.errors import RequestError
from favor.zoo.matching import matching_models
from favor.zoo.registry import card

DOOR: Any = typer.main.get_command(app)
OPTIONS_OF_MODELS = ("model", "without")


def commands(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands below a group, each with the words that lead to it."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = dict(commands(DOOR))
EXAMPLES = [
    example for command in COMMANDS.values() for example in re.findall(r"`(favor .*?)  # .*?`", command.epilog or "")
]


def check(example: str) -> None:
    """Refuse an example with a command, an option, a value or a model that does not exist."""
    words = shlex.split(example)[1:]
    DOOR.make_context("favor", list(words))
    command, rest = command_of(words)
    given = command.make_context("favor", list(rest)).params
    for parameter in command.params:
        says_model = "timm:NAME" in (getattr(parameter, "help", None) or "")
        if (says_model or parameter.name in OPTIONS_OF_MODELS) and given[parameter.name]:
            asked = given[parameter.name]
            for name in matching_models([asked] if isinstance(asked, str) else list(asked)):
                card(name)


def command_of(words: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """The command that words name, behind options of the door maybe, and the words after it."""
    for place in range(len(words)):
        for path, command in COMMANDS.items():
            if tuple(words[place : place + len(path)]) == path:
                return command, words[place + len(path) :]
    raise RequestError(f"no command in {' '.join(words)}")


def test_every_command_has_examples() -> None:
    without = [path for path, command in COMMANDS.items() if f"`favor {' '.join(path)}" not in (command.epilog or "")]
    assert without == []
    assert len(EXAMPLES) > len(COMMANDS)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_has_a_command_options_and_models_that_exist(example: str) -> None:
    check(example)


@pytest.mark.parametrize(
    "example", ["favor measure tome_s16", "favor count vit_s17 --json", "favor correlate --without vit_s17"]
)
def test_an_example_with_a_model_that_does_not_exist_is_found(example: str) -> None:
    with pytest.raises(RequestError, match="unknown model"):
        check(example)


@pytest.mark.parametrize("example", ["favor measure vit_s16 --phaze both", "favor count"])
def test_an_example_that_cannot_be_parsed_is_found(example: str) -> None:
    with pytest.raises(TyperException, match="No such option|Missing"):
        check(example)


def test_an_example_of_no_command_is_found() -> None:
    with pytest.raises(RequestError, match="no command in meassure vit_s16"):
        check("favor meassure vit_s16")
