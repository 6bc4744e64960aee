"""Pretrained weights: what a model can take is timm's registry's word, and it gives timm's outputs with them."""

import io
import logging
import re
import shutil
import zipfile
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save, save_file
from torch import nn

import favor
from equality import images, largest_difference, mutated
from fake_hub import FakeHub
from favor.errors import RequestError, WorkError
from favor.zoo.checkpoints import ARCHITECTURES, BORROWED, architectures_of, checkpoint, checkpoints, pushed_model
from favor.zoo.registry import card, find_entry, list_models
from hostile.attacks import PICKLES, SAID, as_pickle

ONE_OF_EACH_FAMILY = (
    "vit_ti16",
    "deit_ti16",
    "deit3_s16",
    "resnet18",
    "xcit_ti12_p16",
    "swin_ti",
    "swinv2_ti",
    "coat_lite_ti",
    "efficientformerv2_s0",
    "efficientvit_b1",
    "nextvit_s",
    "fastvit_t8",
    "focalnet_ti",
    "mixer_b16",
    "swiftformer_xs",
    "cait_xxs24",
)
ALL_TOKENS = {"tome_r8_ti16": {"r": 0}, "evit_ti16": {"keep": 1.0}, "evit_fuse_ti16": {"keep": 1.0}}


def settled(model: nn.Module) -> nn.Module:
    """timm's network with random values in all weights, batch norms included."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            is_matrix = parameter.ndim > 1 and parameter.shape[0] > 1
            deviation = 1.4 * parameter[0].numel() ** -0.5 if is_matrix else 0.3
            parameter.normal_(0.0 if parameter.ndim > 1 else 0.8, deviation, generator=generator)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.copy_(torch.randn(module.running_mean.shape, generator=generator) * 0.3)
                module.running_var.copy_(torch.rand(module.running_var.shape, generator=generator) + 0.5)
    return model.eval()


def test_every_family_that_claims_exact_weights_is_tested_for_it() -> None:
    assert {card(name).family for name in ARCHITECTURES} == {card(name).family for name in ONE_OF_EACH_FAMILY}


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_timm_s_weights_load_strictly_and_give_timm_s_outputs(name: str) -> None:
    chosen = checkpoint(name)
    theirs = settled(timm.create_model(chosen.name, num_classes=7))
    ours = favor.create_model(name, img_size=chosen.img_size, num_classes=7).eval()
    loaded = favor.load_weights(ours, theirs.state_dict())
    assert str(loaded) == "all weights copied as they are"
    x = images(1, 3, chosen.img_size, chosen.img_size)
    with torch.no_grad():
        expected = theirs(x)
        scale = float(expected.abs().max())
        assert scale > 0
        assert largest_difference(ours(x), expected) < 1e-5 * max(scale, 1.0)
        last = next(part for part in reversed(list(ours.modules())) if isinstance(part, nn.LayerNorm | nn.BatchNorm2d))
        with mutated(last):
            assert largest_difference(ours(x), expected) > 1e-4 * scale


@pytest.mark.parametrize("name", ALL_TOKENS)
def test_a_model_that_borrows_vit_s_weights_is_vit_when_it_keeps_all_tokens(name: str) -> None:
    assert checkpoint(name).borrowed
    theirs = settled(timm.create_model(architectures_of(name)[0]))
    ours = favor.create_model(name, **ALL_TOKENS[name]).eval()
    assert str(favor.load_weights(ours, theirs.state_dict())) == "all weights copied as they are"
    x = images(1, 3, 224, 224)
    with torch.no_grad():
        expected = theirs(x)
        assert largest_difference(ours(x), expected) < 1e-5 * float(expected.abs().max())


def test_a_class_position_is_neither_lost_nor_added_twice() -> None:
    theirs = settled(timm.create_model("vit_tiny_patch16_224"))
    ours = favor.create_model("vit_ti16")
    favor.load_weights(ours, theirs.state_dict())
    assert torch.equal(ours.class_token, theirs.cls_token + theirs.pos_embed[:, :1])
    assert torch.equal(ours.positions.weight, theirs.pos_embed[:, 1:])


def test_half_of_a_layer_scale_is_not_filled_up() -> None:
    state = timm.create_model("deit3_small_patch16_224").state_dict()
    del state["blocks.3.ls1.gamma"]
    with pytest.raises(RequestError, match=r"1 missing \(blocks.3.ls1.gamma\)"):
        favor.load_weights(favor.create_model("deit3_s16"), state)


@pytest.mark.parametrize("name", ["universal_ti16", "linformer_ti16", "dynamicvit_ti16"])
def test_a_model_that_vit_s_weights_do_not_fill_refuses_them(name: str) -> None:
    with pytest.raises(RequestError, match="another architecture"):
        favor.load_weights(favor.create_model(name), timm.create_model("vit_tiny_patch16_224").state_dict())


def test_every_network_of_timm_in_the_zoo_has_its_own_architecture_in_the_table() -> None:
    for name in list_models(origin="timm"):
        assert architectures_of(name)[0] == find_entry(name).settings["architecture"], name


def test_every_model_of_the_table_is_in_the_zoo_and_only_one_has_no_checkpoint() -> None:
    names = {*ARCHITECTURES, *BORROWED}
    assert names <= set(list_models())
    assert [name for name in sorted(names) if not checkpoints(name)] == ["mixer_s16"]


def test_a_checkpoint_says_what_timm_says_of_it() -> None:
    found = checkpoint("vit_s16")
    assert (found.name, found.source) == (
        "vit_small_patch16_224.augreg_in21k_ft_in1k",
        "timm/vit_small_patch16_224.augreg_in21k_ft_in1k",
    )
    assert (found.img_size, found.crop_ratio, found.interpolation) == (224, 0.9, "bicubic")
    assert (found.mean, found.std, found.num_classes) == ((0.5,) * 3, (0.5,) * 3, 1000)
    assert found.license == "apache-2.0"
    assert not found.borrowed


def test_a_checkpoint_is_chosen_by_tag_or_by_timm_s_name() -> None:
    assert checkpoint("cait_s24", "fb_dist_in1k").img_size == 224
    assert checkpoint("cait_s24", "cait_s24_384.fb_dist_in1k").img_size == 384
    assert checkpoint("cait_s24", "fb_dist_in1k", img_size=384).architecture == "cait_s24_384"
    assert checkpoint("cait_s24", img_size=448).img_size == 224
    assert checkpoint("timm:resnet50.tv_in1k").tag == "tv_in1k"
    with pytest.raises(RequestError, match="did you mean .*augreg_in1k"):
        checkpoint("vit_s16", "augreg_in1")
    with pytest.raises(RequestError, match="no pretrained weights of linformer_s16 are published"):
        favor.create_model("linformer_s16", pretrained=True)
    with pytest.raises(RequestError, match="true, false or the tag"):
        favor.create_model("vit_s16", pretrained=3)


def published(hub: FakeHub, name: str = "resnet18.a1_in1k") -> nn.Module:
    theirs = settled(timm.create_model(name))
    hub.files[f"timm/{name}/model.safetensors"] = save(theirs.state_dict())
    return theirs


def test_pretrained_weights_come_from_the_hub_once_and_from_the_cache_after_it(
    fake_hub: FakeHub,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = published(fake_hub)
    ours = favor.create_model("resnet18", pretrained=True).eval()
    x = images(1, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(ours(x), theirs(x))
    assert not any("bin" in asked for asked in fake_hub.asked)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    fake_hub.files.clear()
    again = favor.create_model("resnet18", pretrained="a1_in1k")
    assert torch.equal(again.fc.weight, ours.fc.weight)


def test_pretrained_weights_fit_another_image_size_and_other_classes(fake_hub: FakeHub) -> None:
    theirs = published(fake_hub, "vit_tiny_patch16_224.augreg_in21k_ft_in1k")
    ours = favor.create_model("vit_ti16", pretrained=True, img_size=96, num_classes=5)
    assert ours.positions.weight.shape[1] == 36
    assert ours.head.weight.shape[0] == 5
    assert torch.equal(ours.blocks[3].mixer.qkv.weight, theirs.blocks[3].attn.qkv.weight)
    assert favor.create_model("vit_ti16", pretrained=True).img_size == (224, 224)


def test_a_download_that_breaks_off_goes_on_where_it_was(fake_hub: FakeHub) -> None:
    theirs = published(fake_hub)
    fake_hub.torn["timm/resnet18.a1_in1k/model.safetensors"] = 1
    ours = favor.create_model("resnet18", pretrained=True)
    assert torch.equal(ours.fc.weight, theirs.fc.weight)


def test_a_download_with_a_wrong_byte_is_refused_and_deleted(fake_hub: FakeHub) -> None:
    theirs = published(fake_hub)
    fake_hub.flipped["timm/resnet18.a1_in1k/model.safetensors"] = 1
    with pytest.raises(WorkError, match="resnet18.a1_in1k: the download is damaged .* and was deleted; try again"):
        favor.create_model("resnet18", pretrained=True)
    assert torch.equal(favor.create_model("resnet18", pretrained=True).fc.weight, theirs.fc.weight)


def test_a_pickle_from_the_hub_with_more_than_weights_is_refused(fake_hub: FakeHub) -> None:
    # bytearray(2**36) in the place of weights: `weights_only` of PyTorch allows it, and reserves 64 GB
    bomb = b"\x80\x02cbuiltins\nbytearray\n\x8a\x05\x00\x00\x00\x00\x10\x85R."
    fake_hub.files["timm/resnet18.a1_in1k/pytorch_model.bin"] = bomb
    with pytest.raises(RequestError, match="a pickle with more than weights, which favor does not execute"):
        favor.create_model("resnet18", pretrained=True)


@pytest.mark.parametrize("is_offline", [True, False], ids=["HF_HUB_OFFLINE", "no network"])
def test_without_a_network_a_cached_pickle_is_found_where_there_is_no_safetensors(
    fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch, is_offline: bool
) -> None:
    theirs, file = settled(timm.create_model("resnet18.a1_in1k")), io.BytesIO()
    torch.save(theirs.state_dict(), file)
    fake_hub.files["timm/resnet18.a1_in1k/pytorch_model.bin"] = file.getvalue()
    favor.create_model("resnet18", pretrained=True)
    if is_offline:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    else:
        nobody = "http://127.0.0.1:9/{repo_id}/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", nobody)
        monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert torch.equal(favor.create_model("resnet18", pretrained=True).fc.weight, theirs.fc.weight)


@pytest.mark.parametrize("said", SAID, ids=range(len(SAID)))
def test_a_pushed_model_that_says_nonsense_is_refused(fake_hub: FakeHub, said: str) -> None:
    fake_hub.files["me/mine/model.safetensors"] = save({"a": torch.zeros(1)}, {"favor.trained": said})
    with pytest.raises(WorkError, match="hub:me/mine: not a model that `favor push` uploaded") as error:
        pushed_model("hub:me/mine")
    assert "\n" not in str(error.value)


def test_a_pickle_is_checked_before_timm_reads_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "weights.bin", "w") as archive:
        archive.writestr("w/version", "3\n")
        archive.writestr("w/data.pkl", as_pickle(PICKLES["a set of 2^40 parts"]))
    with pytest.raises(RequestError, match="weights.bin: a pickle with more than weights"):
        favor.create_model("resnet18", pretrained=str(tmp_path / "weights.bin"))


def test_weights_in_a_local_file_need_no_network(tmp_path: Path, fake_hub: FakeHub) -> None:
    theirs, file = settled(timm.create_model("resnet18.a1_in1k")), tmp_path / "resnet.safetensors"
    save_file(theirs.state_dict(), file)
    assert torch.equal(favor.create_model("resnet18", pretrained=str(file)).fc.weight, theirs.fc.weight)
    assert not fake_hub.asked
    with pytest.raises(WorkError, match=r"resnet\.safetensors cannot be loaded .* must be those of timm's vit_tiny"):
        favor.create_model("vit_ti16", pretrained=str(file))
    with pytest.raises(RequestError, match="gone.safetensors: there is no such file"):
        favor.create_model("vit_ti16", pretrained="gone.safetensors")


@pytest.mark.parametrize(
    "content", [b"not weights", save({"fc.weight": torch.zeros(3)})], ids=["no weights", "weights of another network"]
)
def test_a_wrong_file_is_refused_with_the_place_of_it(fake_hub: FakeHub, content: bytes) -> None:
    fake_hub.files["timm/resnet18.a1_in1k/model.safetensors"] = content
    with pytest.raises(WorkError, match=r"resnet18\.a1_in1k from timm/resnet18\.a1_in1k cannot be loaded") as error:
        favor.create_model("resnet18", pretrained=True)
    path = re.search(r"delete (\S+) and", str(error.value))
    assert path is not None
    assert Path(path[1]).name == "model.safetensors"
    assert "\n" not in str(error.value)


def test_a_file_that_the_hub_does_not_have_is_one_line(fake_hub: FakeHub) -> None:
    with pytest.raises(WorkError, match="cannot be downloaded from timm/resnet18.a1_in1k") as error:
        favor.create_model("resnet18", pretrained=True)
    assert "it does not exist, or has no model.safetensors or pytorch_model.bin; check the name" in str(error.value)
    assert "network" not in str(error.value)
    assert [asked.rpartition("/")[2] for asked in fake_hub.asked] == ["model.safetensors", "pytorch_model.bin"]


def test_without_a_network_it_says_what_to_do(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        WorkError, match="not in the cache .* HF_HUB_OFFLINE=1 .*; name a local file .*, unset it, or run `hf download"
    ) as error:
        favor.create_model("resnet18", pretrained=True)
    assert "\n" not in str(error.value)
    assert not fake_hub.asked


def test_what_is_downloaded_is_said_once_and_not_again_from_the_cache(
    fake_hub: FakeHub, caplog: pytest.LogCaptureFixture
) -> None:
    published(fake_hub)
    said = ["downloading the weights resnet18.a1_in1k from timm/resnet18.a1_in1k on the Hugging Face Hub"]
    for _ in range(2):
        favor.create_model("resnet18", pretrained=True)
        assert [record.getMessage() for record in caplog.records] == said


def test_without_a_network_the_folder_that_the_error_names_helps_in_another_cache(
    tmp_path: Path, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = published(fake_hub)
    favor.create_model("resnet18", pretrained=True)
    nobody = "http://127.0.0.1:9/{repo_id}/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", nobody)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(WorkError, match="run `hf download timm/resnet18.a1_in1k` on a machine with") as error:
        favor.create_model("resnet18", pretrained=True)
    told = re.search(r"copy (\S+) from its cache into (\S+)$", str(error.value))
    assert told is not None
    shutil.copytree(tmp_path / "hub" / told[1], Path(told[2]) / told[1], symlinks=True)
    assert torch.equal(favor.create_model("resnet18", pretrained=True).fc.weight, theirs.fc.weight)


def test_a_hub_that_does_not_answer_is_one_line_with_the_cause(
    fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = "http://127.0.0.1:9/{repo_id}/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", nobody)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "propagate", True)
    with pytest.raises(
        WorkError,
        match=r"refused\); name a local file \(--weights FILE\), check the network, or run `hf download timm/",
    ) as error:
        favor.create_model("resnet18", pretrained=True)
    assert "\n" not in str(error.value)
    assert [record.name for record in caplog.records] == ["favor.zoo"]  # nothing of huggingface_hub's own


def test_every_checkpoint_of_the_zoo_tells_its_recipe_unless_its_tag_names_only_data_and_teacher() -> None:
    found = {one.tag: one.recipe for model in (*ARCHITECTURES, *BORROWED) for one in checkpoints(model)}
    assert {tag for tag, recipe in found.items() if not recipe} <= {"in1k", "dist_in1k"}
    assert found["a3_in1k"] == "ResNet Strikes Back A3 (100 epochs, 160 px)"
    assert found["fb_swsl_ig1b_ft_in1k"] == "Meta, semi-weakly supervised"
