"""Settings in a model's name: all spellings are one model, and what is wrong is refused in one line."""

import json

import pytest
import torch
from typer.testing import CliRunner

from favor.cli import app
from favor.errors import RequestError
from favor.trace.counts import count
from favor.zoo.matching import matching_models
from favor.zoo.registry import Variant, card, create_model, register_variant
from favor.zoo.sequence.removal.evit import evit
from favor.zoo.settings import parse_name, respelled, spelled


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("evit_s16(keep=0.5)", "evit_s16(keep=0.5)"),
        (" evit_s16 ( keep = .5, ) ", "evit_s16(keep=0.5)"),
        ("EViT-S/16(keep=5e-1)", "evit_s16(keep=0.5)"),
        ("evit_s16(keep=1.0)", "evit_s16(keep=1)"),
        ("evit_s16(keep=0.7)", "evit_s16"),
        ("evit_s16()", "evit_s16"),
        ("evit_s16(shrink=[0, 0.5], keep=0.7)", "evit_s16(shrink=(0,0.5))"),
        ("evit_s16(size=ti, keep=0.5)", "evit_s16(keep=0.5,size=ti)"),
        ("evit_s16(size='ti')", "evit_ti16"),
        ("nystrom32_s16(landmarks=64)", "nystrom64_s16"),
        ("vit_s16(pad=true)", "vit_s16(pad=True)"),
        ("timm:resnet10t(stem_width=16)", "timm:resnet10t(stem_width=16)"),
    ],
)
def test_all_spellings_of_a_model_lead_to_one_name(spelling: str, name: str) -> None:
    assert card(spelling).name == name
    assert card(name).name == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("linformer_s16(kk=256)", "unknown setting of linformer_s16 'kk'"),
        ("evit_s16(keeps=0.5)", "did you mean 'keep'"),
        ("evit_s16(keep=many)", "keep of evit_s16 is a number, not 'many'"),
        ("linformer_s16(k=2.5)", "k of linformer_s16 is a whole number of 1 or more, not 2.5"),
        ("evit_s16(size=xl)", "unknown size 'xl'"),
        ("linfomer_s16(k=2)", "unknown model 'linfomer_s16'; did you mean 'linformer_s16'"),
        ("evit_s16(img_size=32)", "unknown setting of evit_s16 'img_size'"),
        ("evit_s16(keep=0.5", "cannot read the settings in"),
        ("evit_s16(0.5)", "cannot read the settings in"),
        ("evit_s16(keep=0.5)(size=b)", "cannot read the settings in"),
        ("evit_s16(keep=0.5)+(size)", "cannot read the settings in"),
        ("evit_s16(**keep)", "cannot read the settings in"),
        ("evit_s16(keep=1e999)", "cannot read the settings in"),
        ("evit_s16(keep=0.5,keep=0.6)", "cannot read the settings in"),
        ("evit_s16(keep=__import__('os').getpid())", "cannot read the settings in"),
        ("evit_s16(keep=\0)", "cannot read the settings in"),
        (f"evit_s16(keep={'[' * 240}{']' * 240})", "cannot read the settings in"),
        (f"evit_s16(keep=0.{'5' * 1000})", "cannot read the settings in"),
    ],
)
def test_settings_that_are_wrong_are_refused_in_one_line(name: str, why: str) -> None:
    with pytest.raises(RequestError, match=why) as refused:
        card(name)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_model_with_settings_in_its_name_is_the_one_with_the_settings_beside_it() -> None:
    torch.manual_seed(0)
    named = create_model("evit_ti16(keep=0.5)", img_size=64, num_classes=3)
    torch.manual_seed(0)
    beside = create_model("evit_ti16", img_size=64, num_classes=3, keep=0.5)
    images = torch.rand(1, 3, 64, 64)
    assert torch.equal(named.eval()(images), beside.eval()(images))
    assert count("evit_ti16(keep=0.5)").macs < count("evit_ti16").macs < count("evit_ti16(keep=0.9)").macs


def test_a_setting_given_twice_is_refused() -> None:
    with pytest.raises(RequestError, match="keep is given twice"):
        create_model("evit_ti16(keep=0.5)", keep=0.6)


def test_settings_hold_for_all_models_of_a_pattern() -> None:
    assert matching_models(["evit_[ts]*16(keep=.5)", "evit_s16(keep=0.5)", "evit_s16(keep=0.7)"]) == [
        "evit_ti16(keep=0.5)",
        "evit_s16(keep=0.5)",
        "evit_s16",
    ]


def test_the_card_says_which_settings_are_not_the_model_s_own() -> None:
    found = card("evit_s16(keep=0.5)")
    assert (found.family, found.aliases) == ("evit", ())
    assert "evit_s16(keep=0.5)" in found.notes[0]


def test_a_registered_name_has_no_brackets() -> None:
    with pytest.raises(RequestError, match="which hold settings"):
        register_variant(evit, Variant("evit(s16)"))


def test_a_name_and_its_settings_survive_being_spelled() -> None:
    settings = {
        "a": 1,
        "b": 0.25,
        "c": "word",
        "d": "two words",
        "e": (1, (2.5, "x")),
        "f": None,
        "g": False,
        "h": (1,),
    }
    assert parse_name(spelled("name", settings)) == ("name", settings)
    assert spelled("name", settings | {"c": "true"}) != spelled("name", settings | {"c": True})
    assert respelled("vit_*") == "vit_*"


def test_count_and_show_take_settings_in_a_name() -> None:
    counted = CliRunner().invoke(app, ["count", "linformer_ti16( k = 32 )", "--json"])
    assert [entry["name"] for entry in json.loads(counted.stdout)] == ["linformer_ti16(k=32)"]
    shown = CliRunner().invoke(app, ["show", "linformer_ti16(k=32)", "--json"])
    assert json.loads(shown.stdout)["name"] == "linformer_ti16(k=32)"
