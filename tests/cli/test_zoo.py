"""`favor show`: what a card says is shown."""

import json

import pytest

from favor.cli.zoo import show_command


def test_show_tells_what_breaks_the_graph(capsys: pytest.CaptureFixture[str]) -> None:
    show_command("avit_s16")
    assert "breaks the graph" in capsys.readouterr().out
    show_command("vit_s16")
    assert "breaks the graph" not in capsys.readouterr().out


def test_show_tells_programs_what_breaks_the_graph(capsys: pytest.CaptureFixture[str]) -> None:
    show_command("avit_s16", as_json=True)
    assert "tolist" in json.loads(capsys.readouterr().out)["graph_breaks"]
    show_command("vit_s16", as_json=True)
    assert json.loads(capsys.readouterr().out)["graph_breaks"] is None
