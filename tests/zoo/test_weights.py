"""Weights made at one image size or for other classes load into a model of another, and it says what it did."""

import pytest
import torch

import favor
from equality import images, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.encoder import Size
from favor.zoo.layers import resize_tokens, source_grid

SMALL = Size(48, 2, 3)


def vit(**options: object) -> torch.nn.Module:
    return with_order_one_weights(favor.create_model("vit_s16", size=SMALL, **options))


def test_the_same_model_takes_all_weights_as_they_are() -> None:
    source, target = vit(img_size=32), favor.create_model("vit_s16", size=SMALL, img_size=32)
    loaded = favor.load_weights(target, source.state_dict())
    assert (loaded.resampled, loaded.replaced) == ((), ())
    assert str(loaded) == "all weights copied as they are"
    x = images(1, 3, 32, 32)
    assert torch.equal(source.eval()(x), target.eval()(x))


def test_meta_tensors_are_no_weights() -> None:
    model = vit(img_size=32)
    state = {name: weight.to("meta") for name, weight in model.state_dict().items()}
    with pytest.raises(RequestError, match="is a meta tensor, which has a shape but no numbers"):
        favor.load_weights(model, state)


def test_positions_are_resampled_to_a_larger_image_and_it_is_said() -> None:
    loaded = favor.load_weights(vit(img_size=384), vit(img_size=224).state_dict())
    assert loaded.resampled == ("positions.weight",)
    assert "resampled to the new token grid: positions.weight" in str(loaded)


def test_resampled_positions_keep_a_linear_gradient() -> None:
    rows = torch.arange(14.0)[:, None].expand(14, 14).reshape(1, 196, 1)
    resized = resize_tokens(rows, (28, 28)).reshape(28, 28)
    assert torch.allclose(resized[:, 3], resized[:, 20])
    steps = resized[4:24, 0].diff()
    assert torch.allclose(steps, torch.full_like(steps, 0.5), atol=1e-4)


def test_a_head_of_other_classes_is_left_untrained_and_it_is_said() -> None:
    target = vit(img_size=32, num_classes=5)
    before = target.head.weight.clone()
    loaded = favor.load_weights(target, vit(img_size=32, num_classes=9).state_dict())
    assert loaded.replaced == ("head.weight", "head.bias")
    assert "new head, since the weights have none for these classes" in str(loaded)
    assert torch.equal(target.head.weight, before)


def test_timm_s_heads_are_replaced_too() -> None:
    source, target = favor.create_model("resnet18", num_classes=3), favor.create_model("resnet18", num_classes=4)
    assert favor.load_weights(target, source.state_dict()).replaced == ("fc.weight", "fc.bias")


def test_weights_of_another_architecture_are_refused() -> None:
    with pytest.raises(RequestError, match="another architecture than Encoder: .* unknown"):
        favor.load_weights(vit(img_size=32), favor.create_model("resnet18").state_dict())


def test_a_weight_of_another_shape_without_a_rule_is_refused() -> None:
    wider = favor.create_model("vit_s16", size=Size(96, 2, 3), img_size=32)
    with pytest.raises(RequestError, match="no rule to resample"):
        favor.load_weights(vit(img_size=32), wider.state_dict())


def test_linformer_s_projections_keep_the_size_of_their_sums() -> None:
    options = {"size": SMALL, "k": 4}
    source = favor.create_model("linformer_s16", img_size=64, **options)
    target = favor.create_model("linformer_s16", img_size=128, **options)
    loaded = favor.load_weights(target, source.state_dict())
    assert "blocks.0.mixer.project_keys" in loaded.resampled
    old, new = source.blocks[0].mixer.project_keys, target.blocks[0].mixer.project_keys
    assert torch.allclose(old[:, 1:].sum(dim=1), new[:, 1:].sum(dim=1), atol=0.35)
    assert torch.equal(old[:, 0], new[:, 0])


def test_the_source_grid_has_the_aspect_ratio_of_the_target() -> None:
    assert source_grid(98, like=(28, 14)) == (14, 7)
    with pytest.raises(RequestError, match="do not form a grid"):
        source_grid(197, like=(24, 24))


def test_weights_without_a_head_load_and_half_a_head_is_refused() -> None:
    state = vit(img_size=32).state_dict()
    body = {name: weight for name, weight in state.items() if not name.startswith("head")}
    assert favor.load_weights(vit(img_size=32), body).replaced == ("head.weight", "head.bias")
    with pytest.raises(RequestError, match="1 missing \\(head.bias\\)"):
        favor.load_weights(vit(img_size=32), {**body, "head.weight": state["head.weight"]})


def test_a_difference_that_the_image_size_does_not_explain_is_said_to_be_one_of_settings() -> None:
    source = favor.create_model("linformer_s16", size=SMALL, img_size=32, k=4)
    with pytest.raises(RequestError, match="made with other settings"):
        favor.load_weights(favor.create_model("linformer_s16", size=SMALL, img_size=32, k=3), source.state_dict())


@pytest.mark.parametrize("name", ["vit_s16", "gfnet_s16", "linformer_s16"])
def test_weights_for_images_of_another_aspect_ratio_are_refused(name: str) -> None:
    square = favor.create_model(name, size=SMALL, img_size=64)
    wide = favor.create_model(name, size=SMALL, img_size=(32, 128))  # as many tokens, on another grid
    with pytest.raises(RequestError, match="say for which images"):
        favor.load_weights(wide, square.state_dict())
    with pytest.raises(RequestError, match="64 x 64 px are of another aspect ratio"):
        favor.load_weights(wide, square.state_dict(), img_size=(64, 64))
    with pytest.raises(RequestError, match="32 x 128 px are of another aspect ratio"):
        favor.load_weights(square, wide.state_dict(), img_size=(32, 128))
    assert favor.load_weights(wide, wide.state_dict(), img_size=(32, 128)).resampled == ()


def test_weights_that_belong_to_no_place_load_for_an_image_of_any_shape() -> None:
    wide = favor.create_model("resnet18", img_size=(64, 128))
    assert favor.load_weights(wide, favor.create_model("resnet18").state_dict()).resampled == ()


@pytest.mark.parametrize(
    "kind", [torch.int8, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2]
)
def test_weights_of_a_type_that_holds_no_weights_are_refused_and_nothing_is_changed(kind: torch.dtype) -> None:
    target = vit(img_size=32)
    before = target.head.weight.clone()
    state = {**vit(img_size=32).state_dict(), "norm.weight": torch.ones(48).to(kind)}
    with pytest.raises(RequestError, match=f"weight 'norm.weight' has the type {kind}, which cannot hold"):
        favor.load_weights(target, state)
    assert torch.equal(target.head.weight, before)


def test_a_count_in_floating_point_is_refused_where_the_model_counts_in_integers() -> None:
    model = favor.create_model("resnet18", num_classes=3)
    state = {**model.state_dict(), "bn1.num_batches_tracked": torch.tensor(1.5)}
    with pytest.raises(RequestError, match="weight 'bn1.num_batches_tracked' has the type torch.float32"):
        favor.load_weights(model, state)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_precision_are_taken(kind: torch.dtype) -> None:
    state = {name: weight.to(kind) for name, weight in vit(img_size=32).state_dict().items()}
    assert str(favor.load_weights(vit(img_size=32), state)) == "all weights copied as they are"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_told(value: float, caplog: pytest.LogCaptureFixture) -> None:
    state = vit(img_size=32).state_dict()
    state["head.bias"][3] = value
    loaded = favor.load_weights(vit(img_size=32), state)
    assert loaded.not_finite == ("head.bias",)
    assert str(loaded) == "weights that are not finite: head.bias"
    assert "the weights hold NaN or infinity in head.bias" in caplog.text
