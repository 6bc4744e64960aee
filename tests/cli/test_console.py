"""Whatever surrounds a command or comes in as data, it ends in one clear line; the terminal obeys favor alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from favor.cli import main
from favor.cli.console import emit_json, emit_line, emit_table, emit_text
from favor.terminal import note
from favor.text import on_one_line, printable

FAVOR = [sys.executable, "-m", "favor"]
HOSTILE = "a\x1b[31mb\x00c\x9bd\u202ee\x07"
SPELLED_OUT = r"a\x1b[31mb\x00c\x9bd\u202ee\x07"


def favor(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*FAVOR, *words], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]


def shell(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The exit code of a script of the shell, in which $FAVOR is the command."""
    variables = os.environ | {"FAVOR": " ".join(FAVOR)} | environment
    return subprocess.run(["/bin/bash", "-c", script], env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("$FAVOR list >&-", "error: stdout is closed; redirect it to a file, or to /dev/null\n"),
        ("$FAVOR list --json >/dev/full", "error: cannot write to stdout: No space left on device\n"),
        ("$FAVOR --help >/dev/full", "error: cannot write to stdout: No space left on device\n"),
        (
            "PYTHONUNBUFFERED= $FAVOR show vit_s16 >/dev/full",
            "error: cannot write to stdout: No space left on device\n",
        ),
        (
            "mkdir $HERE/gone && cd $HERE/gone && rmdir $HERE/gone && $FAVOR list",
            "error: the current folder cannot be read (No such file or directory); change to another one\n",
        ),
    ],
)
def test_where_no_command_can_work_one_line_says_why(script: str, told: str, tmp_path: Path) -> None:
    done = shell(script, HERE=str(tmp_path))
    assert (done.returncode in (1, 2), done.stderr) == (True, told)


def test_titles_columns_and_cells_are_not_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    emit_table("x[/y] on [red]z", ("[/a]", "[bold]b"), [("[/c]", "[link]d")], right=("[bold]b",))
    told = capsys.readouterr().out
    assert all(text in told for text in ("x[/y] on [red]z", "[/a]", "[bold]b", "[/c]", "[link]d"))


def test_a_name_between_colons_is_not_printed_as_an_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    emit_line("vit_ti16 after 1 epoch of folder:cat: 1 of 1 correct")
    assert capsys.readouterr().out == "vit_ti16 after 1 epoch of folder:cat: 1 of 1 correct\n"


def test_a_reader_that_stops_reading_gets_no_error() -> None:
    done = shell("$FAVOR list --json | head -1")
    assert (done.stdout, done.stderr) == ("[\n", "")


def test_without_stderr_data_alone_goes_to_stdout() -> None:
    done = shell("$FAVOR show nonsense 2>&-")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_terminal_of_ascii_gets_question_marks_and_json_that_is_whole() -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    done = shell("$FAVOR list --json && $FAVOR list >/dev/null && $FAVOR list --help >/dev/null", **ascii_only)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(favor("list", "--json").stdout)


def test_a_home_that_is_no_folder_is_no_hindrance() -> None:
    done = favor("count", "vit_xs4", "--json", env=os.environ | {"HOME": "/dev/null"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["measure", "vit_xs4", "--batch-size", "9" * 5000],
        ["count", "vit_xs4", "--img-size", "9" * 5000],
        ["show", "9" * 5000],
        ["recommend", "--max-memory", "9" * 5000 + "GB"],
    ],
    ids=lambda words: words[0],
)
def test_a_number_of_thousands_of_digits_is_refused_in_a_line_that_can_be_read(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["favor", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert told == "error: an argument has a number with 5000 digits; at most 300 are allowed\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["count"], "error: Missing argument 'NAME...'. (see `favor count --help`)\n"),
        (["lst"], "error: No such command 'lst'. Did you mean 'list'? (see `favor --help`)\n"),
        (["simulate", "vit_xs4", "--device", "t4", "--num-classes", "9" * 30], "or less, not " + "9" * 30 + "\n"),
    ],
)
def test_a_wrong_request_is_one_line_too(
    words: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["favor", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown.endswith(told)
    assert shown.count("\n") == 1


def test_a_plugin_s_error_of_many_lines_and_colors_is_one_plain_line(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text("raise ValueError('first\\n\\x1b[31msecond\\r\\nthird')\n")
    done = favor("--plugin", str(plugin), "list")
    assert done.returncode == 2
    assert done.stderr == f"error: plugin '{plugin}', line 1: ValueError: first \\x1b[31msecond third\n"


def test_a_note_is_one_line_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    note(f"{HOSTILE}\n  next")
    assert capsys.readouterr().err == f"{SPELLED_OUT} next\n"


def test_a_table_spells_control_characters_out_and_stays_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    emit_table(HOSTILE, ("name",), [(HOSTILE,), ("plain",)])
    lines = capsys.readouterr().out.splitlines()
    assert "\x1b" not in "".join(lines)
    assert SPELLED_OUT in "".join(lines[1:])
    assert len({len(line) for line in lines[1:]}) == 1


def test_json_is_the_same_data_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json({"name": HOSTILE, "plain": "é"})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"name": HOSTILE, "plain": "é"}
    assert printable(shown) == shown
    emit_json({"plain": "é"})
    assert "é" in capsys.readouterr().out


def test_text_for_programs_is_left_as_it_is(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    emit_text(HOSTILE)
    assert capfdbinary.readouterr().out == HOSTILE.encode()


@pytest.mark.parametrize("code", [*range(32), *range(0x7F, 0xA0), 0x202E, 0x2066, 0xD800, 0xFFFF])
def test_no_control_character_is_printable(code: int) -> None:
    kept = code in (9, 10)
    assert (chr(code) in printable(f"a{chr(code)}b")) == kept
    assert on_one_line(f"a{chr(code)}b").isprintable() or code == 9
