"""The door: what every command shares."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from favor.cli import docs_folder, main
from favor.errors import RequestError
from favor.zoo.taxonomy import How

Favor = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def favor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Favor:
    """The command, in this process: it starts at once where a process of its own imports torch first."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["favor", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return subprocess.CompletedProcess(arguments, ended.value.code or 0, *capsys.readouterr())

    return run


def test_help_imports_neither_torch_nor_pandas() -> None:
    script = (
        "import sys; sys.argv = ['favor', '--help']\n"
        "from favor.cli import app\n"
        "try:\n    app()\n"
        "finally:\n    assert not {'torch', 'timm', 'pandas', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_an_unknown_model_is_one_line_on_stderr_and_exit_code_2() -> None:
    command = [sys.executable, "-m", "favor", "show", "vit_s17"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: unknown model 'vit_s17'; did you mean 'vit_s16'")
    assert done.stderr.count("\n") == 1


def test_debug_lets_the_error_out_with_its_traceback(favor: Favor) -> None:
    with pytest.raises(RequestError, match="unknown model"):
        favor("--debug", "show", "vit_s17")


def test_list_as_json_is_a_list_of_cards_and_nothing_else(favor: Favor) -> None:
    done = favor("list", "vit_*", "--json")
    cards = json.loads(done.stdout)
    assert {"vit_ti16", "vit_s16", "vit_b64"} <= {card["name"] for card in cards}
    assert all(card["where"] == "baseline" for card in cards)


def test_list_groups_by_taxonomy_with_its_definitions(favor: Favor) -> None:
    done = favor("list", "--where", "token_sequence")
    assert f"Token sequence: Token Merging - {How.MERGING.definition}" in done.stdout
    assert "tome_r8_s16" in done.stdout


def test_show_tells_the_card(favor: Favor) -> None:
    done = favor("show", "linformer_vit_small_patch16")
    assert done.returncode == 0
    for part in ("linformer_s16", "arXiv:2006.04768", "2020", "O(N)", "Low-Rank Attention", "linformer_b16"):
        assert part in done.stdout


@pytest.mark.parametrize("arguments", [["list", "--how", "krenel"], ["list", "--origin", "mine"], ["nonsense"]])
def test_wrong_requests_exit_with_2(favor: Favor, arguments: list[str]) -> None:
    assert favor(*arguments).returncode == 2


def test_the_documents_that_help_names_are_where_help_says(favor: Favor) -> None:
    sources = (Path(__file__).parents[2] / "src").rglob("*.py")
    named = {name for file in sources for name in re.findall(r"docs/([\w-]+\.md)", file.read_text(encoding="utf-8"))}
    assert len(named) > 5
    assert [name for name in sorted(named) if not (docs_folder() / name).is_file()] == []
    assert str(docs_folder()) in "".join(favor("--help").stdout.split())


def test_a_wheel_carries_the_documents() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"] == {"docs": "favor/docs"}
