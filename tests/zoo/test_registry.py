"""Names lead to models: by name, alias, timm and plugin; what is wrong is told in one line."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import favor
from favor.errors import RequestError
from favor.zoo import registry
from favor.zoo.baseline.vit import vit
from favor.zoo.encoder import Size
from favor.zoo.registry import Card, ImageSizes, Variant
from favor.zoo.taxonomy import How, Where

PLUGIN = '''
"""A mixer that averages all tokens."""
from torch import nn
import favor
from favor.zoo.encoder import Encoder
from favor.zoo.registry import vit_sizes

class MeanMixer(nn.Module):
    fixed_tokens = False
    def __init__(self, dim, heads, tokens):
        super().__init__()
        self.proj = nn.Linear(dim, dim)
    def forward(self, x):
        return self.proj(x.mean(dim=1, keepdim=True)).expand_as(x)

@favor.register(vit_sizes("{prefix}_{{size}}16"), title="Mean", how=None, year=2026, paper=None, changes="Averages.")
def {prefix}(size, **options):
    return Encoder(size, mixer=MeanMixer, **options)
'''


def plugin(folder: Path, prefix: str) -> Path:
    file = folder / f"{prefix}.py"
    file.write_text(PLUGIN.format(prefix=prefix))
    return file


def test_the_papers_names_and_the_predecessor_s_lead_to_the_same_model() -> None:
    for alias, name in {
        "ViT-S/16": "vit_s16",
        "vit-s/16": "vit_s16",
        "linformer_vit_small_patch16": "linformer_s16",
        "DeiT-S/16": "deit_s16",
    }.items():
        assert favor.card(alias).name == name


def test_an_unknown_name_says_what_is_close() -> None:
    with pytest.raises(RequestError, match="unknown model 'linfomer_s16'; did you mean 'linformer_s16'"):
        favor.create_model("linfomer_s16")


def test_an_unknown_setting_says_what_the_family_takes() -> None:
    with pytest.raises(RequestError, match="setting of linformer_s16 'kk'.*k, more_than_tokens, qkv_bias, size"):
        favor.create_model("linformer_s16", kk=3)


def test_a_size_that_the_model_cannot_take_says_which_it_could() -> None:
    with pytest.raises(RequestError, match="vit_s16 cannot take an image side of 230 px.*224 px would do"):
        favor.create_model("vit_s16", img_size=230)
    with pytest.raises(RequestError, match="it takes 224, 384"):
        ImageSizes(only=(224, 384)).check("swin", (225, 225))


def test_an_image_need_not_be_square() -> None:
    model = favor.create_model("vit_ti16", img_size=(32, 64))
    assert model(torch.zeros(1, 3, 32, 64)).shape == (1, 1000)


def test_cards_are_frozen_and_their_place_follows_from_their_strategy() -> None:
    card = favor.card("linformer_s16")
    assert (card.where, card.how) == (Where.TOKEN_MIXING, How.LOW_RANK)
    with pytest.raises(dataclasses.FrozenInstanceError):
        card.year = 1999  # type: ignore[misc]


def test_every_card_is_complete() -> None:
    for name in favor.list_models():
        card = favor.card(name)
        if card.origin != "plugin":
            assert card.how is not None, name
            assert card.paper, name
            assert 2010 < (card.year or 0) < 2030, name
            assert card.complexity, name
            assert card.changes.endswith("."), name


def test_models_are_found_by_pattern_place_strategy_and_origin() -> None:
    assert favor.list_models("vit_*16") == ["vit_ti16", "vit_s16", "vit_b16", "vit_l16"]
    assert "tome_r8_s16" in favor.list_models(where="token_sequence")
    assert "tome_r8_s16" in favor.list_models(how=How.MERGING)
    assert favor.list_models("resnet*", origin="timm") == ["resnet18", "resnet50", "resnet101"]
    with pytest.raises(RequestError, match="did you mean 'kernel'"):
        favor.list_models(how="kernl")


def test_any_network_of_timm_builds_by_its_name() -> None:
    with torch.device("meta"):
        model = favor.create_model("timm:vit_tiny_patch16_224", num_classes=7, img_size=384, in_chans=1, drop_path=0.1)
        assert model(torch.zeros(1, 1, 384, 384)).shape == (1, 7)
    assert favor.card("timm:vit_tiny_patch16_224").origin == "timm"
    with pytest.raises(RequestError, match="unknown network of timm 'resnet5000'; did you mean"):
        favor.card("timm:resnet5000")


def test_a_plugin_s_models_are_models_like_all_others(tmp_path: Path) -> None:
    assert favor.load_plugin(plugin(tmp_path, "meanmixer")) == ["meanmixer_ti16", "meanmixer_s16", "meanmixer_b16"]
    try:
        assert favor.card("meanmixer_s16").origin == "plugin"
        found = favor.list_models("meanmixer_*", origin="plugin")
        assert found == ["meanmixer_ti16", "meanmixer_s16", "meanmixer_b16"]
        assert favor.create_model("meanmixer_ti16", img_size=32)(torch.zeros(1, 3, 32, 32)).shape == (1, 1000)
    finally:
        registry.unregister(favor.list_models("meanmixer_*"))


def test_a_plugin_whose_models_were_taken_out_can_be_loaded_again(tmp_path: Path) -> None:
    file = plugin(tmp_path, "meanmixer")
    for _ in range(2):
        names = favor.load_plugin(file)
        try:
            assert favor.list_models("meanmixer_*") == names
        finally:
            registry.unregister(favor.list_models("meanmixer_*"))
        assert file.resolve() not in registry.loaded_plugins()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "registers no model"),
        ("def f(:", r"line 1: SyntaxError"),
        ("a = 1\nb = a / 0", r"line 2: ZeroDivisionError: division by zero"),
        (PLUGIN.format(prefix="vit"), "'vit_ti16' is registered twice"),
    ],
)
def test_a_broken_plugin_is_refused_with_its_file_and_cause(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    with pytest.raises(RequestError, match=message) as raised:
        favor.load_plugin(file)
    assert "broken.py" in str(raised.value)
    assert file not in registry.loaded_plugins()  # else every process that is started later would load it


def test_an_error_of_a_plugin_is_told_on_one_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("raise ValueError('first\\nsecond \\x1b[2J' + 'x' * 5000)\n")
    with pytest.raises(RequestError, match="line 1: ValueError: first second") as refused:
        favor.load_plugin(file)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


def test_a_plugin_that_fails_halfway_leaves_nothing_behind_and_loads_once_it_is_mended(tmp_path: Path) -> None:
    file = plugin(tmp_path, "halfway")
    whole = file.read_text()
    file.write_text(whole + "\nraise SystemExit(3)\n")
    for _ in range(2):
        with pytest.raises(RequestError, match="line 20: SystemExit: 3"):
            favor.load_plugin(file)
    assert favor.list_models("halfway_*") == []
    file.write_text(whole + "\nprint('hello')\nfavor.list_models()\n")
    try:
        assert favor.load_plugin(file) == favor.load_plugin(file) == favor.list_models("halfway_*")
    finally:
        registry.unregister(favor.list_models("halfway_*"))


def test_a_plugin_that_loads_another_one_goes_on_as_a_plugin(tmp_path: Path) -> None:
    inner, outer = plugin(tmp_path, "inner"), plugin(tmp_path, "outer")
    outer.write_text(f"import favor\nfavor.load_plugin({str(inner)!r})\n" + outer.read_text())
    favor.load_plugin(outer)
    try:
        assert favor.card("inner_s16").origin == favor.card("outer_s16").origin == "plugin"
    finally:
        registry.unregister(favor.list_models("inner_*") + favor.list_models("outer_*"))


def test_a_relative_plugin_is_told_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "div.py").write_text("x = 1\ny = x / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match="plugin 'div.py', line 2: ZeroDivisionError"):
        favor.load_plugin("div.py")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"img_size": 224.0}, "img_size is a side"),
        ({"img_size": (224,)}, "img_size is a side"),
        ({"img_size": "224"}, "img_size is a side"),
        ({"num_classes": True}, "num_classes must be a whole number"),
        ({"num_classes": 2.5}, "num_classes must be a whole number"),
        ({"drop_path": "0.1"}, "drop_path is a share"),
        ({"drop_path": None}, "drop_path is a share"),
        ({"drop_path": [0.1]}, "drop_path is a share"),
        ({"size": "xl"}, "unknown size 'xl'"),
        ({"architecture": "convnext_tiny"}, "unknown setting"),
    ],
)
def test_values_of_a_wrong_kind_are_refused_in_one_line(request_: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        favor.create_model("vit_s16", **request_)


def test_a_size_may_be_named_and_numpy_s_numbers_are_numbers() -> None:
    with torch.device("meta"):
        model = favor.create_model("vit_s16", size="ti", num_classes=np.int64(5), img_size=np.int64(32))
    assert model.head.weight.shape == (5, 192)


def test_settings_of_timm_s_networks_are_passed_on() -> None:
    with torch.device("meta"):
        assert favor.create_model("timm:vit_tiny_patch16_224", global_pool="avg").global_pool == "avg"
    with pytest.raises(RequestError, match="unknown setting of resnet50"):
        favor.create_model("resnet50", architecture="convnext_tiny")


def test_names_are_found_in_any_case() -> None:
    assert favor.card("VIT_S16").name == "vit_s16"
    assert favor.card("ViT-B/32").name == "vit_b32"
    with pytest.raises(RequestError, match="not 5"):
        favor.card(5)  # type: ignore[arg-type]


def test_patterns_fit_in_any_case() -> None:
    assert favor.list_models("VIT_?16") == favor.list_models("vit_?16") == ["vit_s16", "vit_b16", "vit_l16"]


def test_a_network_of_timm_has_one_name_however_it_is_asked_for() -> None:
    assert favor.card("TIMM:resnet18").name == "timm:resnet18"


def one_model(*names: str) -> None:
    """Register a ViT of the smallest size under a name and its aliases."""
    variant = Variant(names[0], {"size": Size(48, 1, 3)}, aliases=names[1:])
    favor.register([variant], title="", how=None, year=None, paper=None, changes="")(vit)


@pytest.mark.parametrize("names", [("VIT_S16",), ("new_s16", "LINFORMER_S16"), ("new_s16", "vit-s/16")])
def test_a_name_that_differs_from_a_known_one_in_its_case_only_is_taken(names: tuple[str, ...]) -> None:
    with pytest.raises(RequestError, match="registered twice"):
        one_model(*names)


def test_a_name_with_capitals_is_found_in_any_case() -> None:
    one_model("MyNet_S16")
    try:
        assert favor.card("mynet_s16").name == favor.card("MyNet_S16").name == "MyNet_S16"
        assert favor.list_models("mynet*") == ["MyNet_S16"]
    finally:
        registry.unregister(["MyNet_S16"])
    with pytest.raises(RequestError, match="unknown model"):
        favor.card("mynet_s16")


@pytest.mark.parametrize("name", ["", "my*net", "my?net", "my[net", "timm:mine", "Timm:mine"])
def test_what_could_not_be_asked_for_cannot_name_a_model(name: str) -> None:
    with pytest.raises(RequestError, match="cannot name a model"):
        one_model(name)
    with pytest.raises(RequestError, match="cannot name a model"):
        one_model("my_net", name)


def test_a_plugin_that_is_not_there_is_refused() -> None:
    with pytest.raises(RequestError, match="does not exist"):
        favor.load_plugin("nowhere.py")


def test_a_name_cannot_be_taken_twice_by_an_alias() -> None:
    with pytest.raises(RequestError, match="registered twice"):
        favor.register(
            [Variant("brand_new", aliases=("ViT-S/16",))], title="", how=None, year=None, paper=None, changes=""
        )(
            lambda **_: None  # type: ignore[arg-type,return-value]
        )


def test_a_card_as_plain_values_has_stable_keys() -> None:
    assert list(favor.card("vit_s16").as_dict()) == [
        "name", "family", "title", "where", "how", "year", "paper", "origin",
        "complexity", "changes", "image_sizes", "notes", "aliases", "graph_breaks",
    ]  # fmt: skip
    assert "tolist" in str(favor.card("avit_s16").as_dict()["graph_breaks"])
    assert isinstance(favor.card("vit_s16"), Card)
