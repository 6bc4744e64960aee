"""`favor list` and `favor show`: what the taxonomy and a card say is shown."""

import json
from pathlib import Path

import pytest

from favor.cli.zoo import list_command, remember_plugins, show_command
from favor.errors import RequestError
from favor.zoo import registry
from favor.zoo.baseline.vit import vit
from favor.zoo.encoder import Size
from favor.zoo.taxonomy import How


def test_show_tells_what_breaks_the_graph(capsys: pytest.CaptureFixture[str]) -> None:
    show_command("avit_s16")
    assert "graph breaks" in capsys.readouterr().out
    show_command("vit_s16")
    assert "graph breaks" not in capsys.readouterr().out


def test_show_tells_programs_what_breaks_the_graph(capsys: pytest.CaptureFixture[str]) -> None:
    show_command("avit_s16", as_json=True)
    assert "tolist" in json.loads(capsys.readouterr().out)["graph_breaks"]
    show_command("vit_s16", as_json=True)
    assert json.loads(capsys.readouterr().out)["graph_breaks"] is None


def test_list_defines_every_place_and_every_strategy_once(capsys: pytest.CaptureFixture[str]) -> None:
    list_command("*", None, None, None)
    shown = " ".join(capsys.readouterr().out.split())
    for how in How:
        assert shown.count(how.definition) == 1
        assert shown.count(how.where.definition) == 1


def test_list_says_that_timm_s_networks_are_not_listed() -> None:
    with pytest.raises(RequestError, match="`favor show timm:NAME` shows"):
        list_command("timm:resnet18", None, None, None)


def test_a_card_s_text_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    variant = registry.Variant("brackets", {"size": Size(48, 1, 3)})
    about = {"title": "Attention [red]with[/] [/brackets]", "how": None, "year": None, "paper": None, "changes": "[b]"}
    registry.register([variant], **about)(vit)  # type: ignore[arg-type]
    try:
        show_command("brackets")
        assert "brackets - Attention [red]with[/] [/brackets]" in capsys.readouterr().out
    finally:
        registry.unregister(["brackets"])


def test_a_plugin_that_is_a_folder_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is a folder"):
        remember_plugins([str(tmp_path)])
