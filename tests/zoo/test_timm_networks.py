"""Networks of timm: the arguments that the comparison needs arrive, and inference forms give the same outputs."""

import pytest
import torch
from torch import nn

import favor
from equality import images, largest_difference, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.fuse import has_inference_form
from favor.zoo.registry import create_miniature

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


@pytest.mark.parametrize(("name", "attribute"), [("swin_ti", "layers.0.blocks.0"), ("swinv2_ti", "layers.0.blocks.0")])
def test_windows_are_7_at_224_px_and_12_at_384_px(name: str, attribute: str) -> None:
    for side, window in ((224, 7), (384, 12)):
        with torch.device("meta"):
            model = favor.create_model(name, img_size=side)
        assert model.get_submodule(attribute).window_size == (window, window)


@pytest.mark.parametrize("name", ["swin_ti", "focalnet_ti", "efficientformerv2_s0", "cait_xxs24", "swiftformer_xs"])
def test_drop_path_arrives(name: str) -> None:
    def rates(model: nn.Module) -> set[float]:
        return {float(getattr(module, "drop_prob", 0) or 0) for module in model.modules()}

    assert max(rates(favor.create_model(name, drop_path=0.3))) == pytest.approx(0.3)
    assert max(rates(favor.create_model(name))) == 0


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
    assert not has_inference_form(model)
    assert has_inference_form(create_miniature("fastvit_t8"))


def test_swin_s_biases_are_resampled_to_the_larger_window() -> None:
    source, target = create_miniature("swin_ti"), create_miniature("swin_ti", img_size=128)
    loaded = favor.load_weights(target, source.state_dict())
    assert loaded.resampled
    assert all(name.endswith("relative_position_bias_table") for name in loaded.resampled)


def test_efficientformer_s_biases_refuse_another_image_size() -> None:
    source = create_miniature("efficientformerv2_s0")
    with pytest.raises(RequestError, match="no rule to resample"):
        favor.load_weights(create_miniature("efficientformerv2_s0", img_size=128), source.state_dict())
