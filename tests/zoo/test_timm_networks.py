"""Networks of timm: the arguments that the comparison needs arrive, and inference forms give the same outputs."""

import pytest
import timm
import torch
from timm.models.dpn import BnActConv2d
from torch import nn

import favor
from drop_path import rates
from equality import images, largest_difference, with_order_one_weights
from favor.errors import RequestError
from favor.trace.counts import count
from favor.zoo.fuse import inference_form
from favor.zoo.registry import create_miniature
from favor.zoo.relative_bias import RelativeBias
from favor.zoo.timm_models import resample_biases, resample_distances

PARAMETERS = {
    "swin_ti": 28_288_354,
    "swin_s": 49_606_258,
    "swinv2_ti": 28_347_154,
    "efficientformerv2_s0": 3_423_256,
    "efficientformerv2_s1": 5_960_560,
    "efficientvit_b1": 9_102_024,
    "efficientvit_b2": 24_330_712,
    "nextvit_s": 31_763_368,
    "coat_ti": 5_498_540,
    "coat_lite_ti": 5_721_960,
    "fastvit_t8": 4_026_232,
    "fastvit_s12": 9_473_576,
    "focalnet_ti": 28_427_116,
    "focalnet_s": 49_891_216,
    "swiftformer_xs": 3_254_360,
    "swiftformer_s": 5_867_128,
    "cait_xxs24": 11_956_264,
    "cait_s24": 46_916_200,
}
"""The benchmark's counts, but for SwiftFormer and CoaT-Lite, whose cards tell the difference."""


@pytest.mark.parametrize(("name", "parameters"), PARAMETERS.items())
def test_has_the_parameters_of_the_benchmark(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = favor.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize("name", PARAMETERS)
def test_takes_224_and_384_px(name: str) -> None:
    for side in (224, 384):
        with torch.device("meta"):
            model = favor.create_model(name, img_size=side, num_classes=7).eval()
            assert model(torch.zeros(1, 3, side, side)).shape == (1, 7)


@pytest.mark.parametrize("name", ["swin_ti", "swinv2_ti"])
def test_windows_are_7_at_224_and_448_px_and_12_at_384_px(name: str) -> None:
    for side, window in ((224, 7), (384, 12), (448, 7)):
        with torch.device("meta"):
            model = favor.create_model(name, img_size=side)
        assert model.get_submodule("layers.0.blocks.0").window_size == (window, window)


@pytest.mark.parametrize("name", ["swin_ti", "swinv2_ti"])
def test_another_window_can_be_asked_for(name: str) -> None:
    with torch.device("meta"):
        model = favor.create_model(name, network={"window_size": 14}, img_size=448)
    assert model.get_submodule("layers.0.blocks.0").window_size == (14, 14)


@pytest.mark.parametrize("name", ["swin_ti", "cait_xxs24"])
def test_an_image_of_another_size_is_refused_where_the_network_is_built_for_one(name: str) -> None:
    with pytest.raises(RequestError, match="built for images of 64 x 64 px, not 128 x 128"):
        create_miniature(name)(images(1, 3, 128, 128))


@pytest.mark.parametrize("name", PARAMETERS)
def test_drop_path_arrives_and_grows_with_the_depth_or_the_card_says_that_it_does_not(name: str) -> None:
    with torch.device("meta"):
        found = rates(favor.create_model(name, drop_path=0.3))
    assert max(found) == pytest.approx(0.3)
    constant = any("Drop path has the same rate in all blocks" in note for note in favor.card(name).notes)
    if constant:
        assert set(found) == {0.3}
    else:
        half = len(found) // 2
        assert found[0] < 0.2 * found[-1], "timm has no drop path at all where its rate is 0"
        assert sum(found[half:]) > 2 * sum(found[:half]) > 0


def test_efficientvit_s_branches_are_dropped_in_training_only() -> None:
    torch.manual_seed(0)
    plain = settle(create_miniature("efficientvit_b1"))
    model = create_miniature("efficientvit_b1", drop_path=0.9)
    assert favor.load_weights(model, plain.state_dict()).resampled == ()
    x = images(4, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(model.eval()(x), plain(x))
        for drop in (module for module in model.modules() if type(module).__name__ == "DropPath"):
            drop.train()  # alone: batch norms in training would give other outputs anyway
        assert largest_difference(model(x), plain(x)) > 1e-3


@pytest.mark.parametrize("name", ["efficientformerv2_s0", "swiftformer_xs"])
def test_timm_s_weights_with_two_heads_give_timm_s_outputs_with_one(name: str) -> None:
    size = {"img_size": 64} if name.startswith("efficientformer") else {}
    theirs = settle(timm.create_model(name, **size))
    ours = favor.create_model(name, img_size=64).eval()
    assert str(favor.load_weights(ours, theirs.state_dict())) == "all weights copied as they are"
    x = images(1, 3, 64, 64)
    with torch.no_grad():
        expected = theirs(x)
        scale = float(expected.abs().max())
        assert largest_difference(ours(x), expected) < 1e-5 * scale
        theirs.head_dist.weight.mul_(1.03)
        assert largest_difference(ours(x), theirs(x)) > 1e-3 * scale
    other = favor.create_model(name, img_size=64, num_classes=7)
    assert favor.load_weights(other, theirs.state_dict()).replaced == ("head.weight", "head.bias")


def settle(model: nn.Module) -> nn.Module:
    """Weights of order one, and batch norms that have seen something."""
    with_order_one_weights(model)
    generator = torch.Generator().manual_seed(3)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.copy_(torch.randn(module.running_mean.shape, generator=generator) * 0.3)
            module.running_var.copy_(torch.rand(module.running_var.shape, generator=generator) + 0.5)
    return model.eval()


@pytest.mark.parametrize("name", ["fastvit_t8", "efficientformerv2_s0"])
def test_the_inference_form_gives_the_same_outputs(name: str) -> None:
    model = settle(create_miniature(name))
    x = images(2, 3, 64, 64)
    with torch.no_grad():
        expected = model(x)
        fused = favor.fuse(model)
        scale = float(expected.abs().max())
        assert largest_difference(fused(x), expected) < 1e-4 * scale
        assert largest_difference(model(x), expected) == 0, "fusing works on a copy"
        next(module for module in fused.modules() if isinstance(module, nn.Conv2d)).weight.mul_(1.03)
        assert largest_difference(fused(x), expected) > 1e-3 * scale
    assert len(list(fused.modules())) < len(list(model.modules()))


def test_a_model_without_an_inference_form_is_copied_as_it_is() -> None:
    model = create_miniature("vit_s16").eval()
    x = images(1, 3, 64, 64)
    assert torch.equal(favor.fuse(model)(x), model(x))
    assert not inference_form(model)[1]
    assert inference_form(create_miniature("fastvit_t8"))[1]


@pytest.mark.parametrize(
    ("name", "before", "after", "sentence"),
    [
        ("fastvit_t8", 70, 0, "every batch norm and branch is part of a convolution"),
        ("efficientformerv2_s0", 75, 1, "(75 to 1 at S0)"),
        ("nextvit_s", 61, 34, "(61 to 34)"),
    ],
)
def test_a_card_says_how_many_batch_norms_its_inference_form_folds(
    name: str, before: int, after: int, sentence: str
) -> None:
    def batch_norms(model: nn.Module) -> int:
        return sum(isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) for module in model.modules())

    model = favor.create_model(name)
    assert (batch_norms(model), batch_norms(favor.fuse(model))) == (before, after)
    assert any(sentence in note for note in favor.card(name).notes)


def test_the_inference_form_of_fastvit_moves_as_few_bytes_as_its_card_says() -> None:
    model = favor.create_model("fastvit_t8")
    trained, fused = count("fastvit_t8"), count(favor.fuse(model), img_size=model.img_size[0])
    assert (round(trained.bytes_moved / 1e6), round(fused.bytes_moved / 1e6)) == (216, 94)
    assert fused.macs_matmul == pytest.approx(trained.macs_matmul, rel=0.1)
    assert any("t8 moves 94 MB per image instead of 216" in note for note in favor.card("fastvit_t8").notes)


def test_a_network_of_timm_that_fuses_itself_in_place_is_fused() -> None:
    model = settle(favor.create_model("timm:repvit_m0_9"))
    fused, differs = inference_form(model)
    assert differs
    x = images(1, 3, 64, 64)
    with torch.no_grad():
        expected = model(x)
        assert largest_difference(fused(x), expected) < 1e-4 * float(expected.abs().max())


def test_swin_s_biases_are_resampled_to_the_larger_window() -> None:
    source, target = create_miniature("swin_ti"), create_miniature("swin_ti", img_size=128)
    loaded = favor.load_weights(target, source.state_dict())
    assert loaded.resampled
    assert all(name.endswith("relative_position_bias_table") for name in loaded.resampled)


def test_resampled_biases_are_timm_s_for_a_square_window() -> None:
    from timm.layers import resize_rel_pos_bias_table_simple

    table = images(13**2, 3)
    expected = resize_rel_pos_bias_table_simple(table, (12, 12), (23**2, 3))
    assert torch.equal(resample_biases(table, 23**2, (12, 12)), expected)
    with_class_token = torch.cat([table, images(3, 3, seed=2)])
    resized = resample_biases(with_class_token, 23**2 + 3, (12, 12))
    assert torch.equal(resized, torch.cat([expected, with_class_token[-3:]]))


def test_resampled_biases_of_a_wide_window_are_those_of_the_high_window_turned() -> None:
    table = images(3 * 7, 5)
    turned = table.view(3, 7, 5).transpose(0, 1).reshape(21, 5)
    wide, high = resample_biases(table, 7 * 15, (4, 8)), resample_biases(turned, 7 * 15, (8, 4))
    assert torch.allclose(wide.view(7, 15, 5), high.view(15, 7, 5).transpose(0, 1), atol=1e-6)
    assert not torch.allclose(wide, high, atol=1e-2)


def test_weights_of_wide_images_load_for_wider_ones_of_the_same_shape_only() -> None:
    source, target = (create_miniature("swin_ti", img_size=size) for size in ((64, 128), (128, 256)))
    assert favor.load_weights(target, source.state_dict(), img_size=(64, 128)).resampled
    with pytest.raises(RequestError, match="say for which images"):
        favor.load_weights(target, source.state_dict())
    with pytest.raises(RequestError, match="another aspect ratio"):
        favor.load_weights(target, create_miniature("swin_ti").state_dict(), img_size=(64, 64))
    square = create_miniature("swin_ti")
    with pytest.raises(RequestError, match="21 biases belong to no window of the aspect ratio of 2 x 2"):
        favor.load_weights(square, source.state_dict())


def test_positions_of_wide_images_are_resampled_row_by_row_and_column_by_column() -> None:
    source, target = (create_miniature("cait_xxs24", img_size=size) for size in ((64, 128), (128, 256)))
    columns = torch.arange(8.0).expand(4, 8).reshape(1, 32, 1).expand_as(source.pos_embed)
    source.pos_embed.data.copy_(columns)
    favor.load_weights(target, source.state_dict(), img_size=(64, 128))
    resized = target.pos_embed[0, :, 0].view(8, 16)
    assert torch.allclose(resized, resized[:1].expand_as(resized), atol=1e-5)
    assert (resized[0].diff() > 0.2).all()


def test_a_type_error_of_timm_s_own_is_not_read_as_an_argument_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise TypeError("'NoneType' object is not iterable")

    monkeypatch.setattr(timm, "create_model", broken)
    with pytest.raises(RequestError, match="cannot build 'fastvit_t8'.*not iterable"):
        favor.create_model("timm:fastvit_t8")


def test_efficientformer_s_biases_are_resampled_to_another_image_size() -> None:
    source = create_miniature("efficientformerv2_s0")
    target = create_miniature("efficientformerv2_s0", img_size=(128, 128)).eval()
    for name, weight in source.named_parameters():
        if name.endswith("attention_biases"):
            torch.nn.init.constant_(weight, 0.5)
    loaded = favor.load_weights(target, source.state_dict())
    assert len(loaded.resampled) == 5
    assert all(name.endswith("attention_biases") for name in loaded.resampled)
    for name in loaded.resampled:
        assert torch.allclose(target.get_parameter(name), torch.tensor(0.5), atol=1e-6)
    assert target(images(1, 3, 128, 128)).isfinite().all()


@pytest.mark.parametrize("grid", [(8, 8), (3, 3), (8, 16), (1, 1)])
def test_resampled_distances_are_the_resampled_offsets_of_either_sign(grid: tuple[int, int]) -> None:
    """The bias of a distance is that of all four offsets with it, whose table is resampled as Swin's is."""
    height, width = (4, 4) if grid[0] == grid[1] else (4, 8)
    biases = images(3, height * width)
    rows, columns = torch.arange(1 - height, height).abs(), torch.arange(1 - width, width).abs()
    table = biases.view(3, height, width)[:, rows[:, None], columns].flatten(1).T
    bias = RelativeBias(grid, heads=3)
    resized = bias.resample("table", table).T.view(3, 2 * grid[0] - 1, 2 * grid[1] - 1)
    expected = resized[:, grid[0] - 1 :, grid[1] - 1 :].flatten(1)
    assert largest_difference(resample_distances(biases, grid), expected) < 1e-5
    if grid != (1, 1):
        assert largest_difference(resample_distances(1.03 * biases, grid), expected) > 1e-3


def test_efficientformer_s_biases_of_another_aspect_ratio_are_refused() -> None:
    source = create_miniature("efficientformerv2_s0", img_size=64)
    wide = create_miniature("efficientformerv2_s0", img_size=(64, 128))
    with pytest.raises(RequestError, match="say for which images"):
        favor.load_weights(wide, source.state_dict())
    with pytest.raises(RequestError, match="another aspect ratio"):
        favor.load_weights(wide, source.state_dict(), img_size=(64, 64))


def test_a_norm_before_its_convolution_is_not_folded_into_it() -> None:
    part = settle(BnActConv2d(6, 6, 1, 1))
    x = images(2, 6, 8, 8)
    with torch.no_grad():
        assert largest_difference(favor.fuse(part)(x), part(x)) == 0
