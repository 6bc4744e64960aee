"""Half precision, other image sizes, empty batches, and graphs without a break: for every architecture of our own.

XCiT and MLP-Mixer, the mixers that are timm's, are with them. All weights are of order one: at initialization
LayerScale at 1e-4 would hide what a mixer does.
"""

from dataclasses import replace

import pytest
import torch
from torch import nn

import favor
from equality import largest_difference, with_order_one_weights
from favor.zoo.encoder import SIZES, Size
from favor.zoo.registry import create_miniature, find_entry
from favor.zoo.training import take_extra_losses

NAMES = [*favor.list_models(origin="own"), "xcit_s12_p16", "mixer_s16"]
FAMILIES = {favor.card(name).family: name for name in reversed(NAMES)}
OWN_MIXERS = [
    name for name in favor.list_models(where="token_mixing", origin="own") if name == FAMILIES[favor.card(name).family]
]
TOO_LARGE_FOR_FLOAT16 = {"slab_ti16"}
"""Without training, its batch norms let the values of order-one weights grow to a million in eval."""
families = pytest.mark.parametrize("name", FAMILIES.values(), ids=FAMILIES.keys())


def side_of(name: str) -> int:
    return int(find_entry(name).miniature["img_size"])  # type: ignore[call-overload]


def with_depth(name: str, depth: int) -> dict[str, object]:
    """The setting that makes a mixer's miniature in the shell so many blocks deep."""
    size = find_entry(name).miniature.get("size")
    return {"size": replace(size, depth=depth)} if isinstance(size, Size) and name in OWN_MIXERS else {}


def model_of(name: str, depth: int = 2) -> nn.Module:
    torch.manual_seed(0)
    model = create_miniature(name, **with_depth(name, depth))
    if name == "mixer_s16":
        model.blocks = model.blocks[:depth]  # its only sizes are those of the paper
    return with_order_one_weights(model)


def pixels(name: str, images: int = 2) -> torch.Tensor:
    """Pixels as large as normalized images have them."""
    return 2 * torch.randn(images, 3, side_of(name), side_of(name), generator=torch.Generator().manual_seed(1))


def loss_of(model: nn.Module, logits: torch.Tensor) -> torch.Tensor:
    loss = nn.functional.cross_entropy(logits.float(), torch.arange(len(logits)))
    return loss + sum(take_extra_losses(model).values())


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@families
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_half_precision_gives_finite_outputs_and_gradients(name: str, dtype: torch.dtype) -> None:
    model = model_of(name).train()
    with torch.autocast("cpu", dtype=dtype):
        logits = model(pixels(name))
        loss_of(model, logits).backward()
    assert logits.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients(model))
    if dtype is torch.float16 and name in TOO_LARGE_FOR_FLOAT16:
        return
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        assert model.eval()(pixels(name)).isfinite().all()


@families
def test_weights_in_half_precision_work_without_autocast(name: str) -> None:
    model = model_of(name).to(torch.bfloat16)
    x = pixels(name).to(torch.bfloat16)
    logits = model.train()(x)
    loss_of(model, logits).backward()
    assert logits.dtype is torch.bfloat16
    assert logits.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients(model))
    with torch.no_grad():
        logits = model.eval()(x)
    assert logits.dtype is torch.bfloat16
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", [name for name in FAMILIES.values() if favor.card(name).origin == "own"])
def test_an_empty_batch_gives_no_logits(name: str) -> None:
    with torch.no_grad():
        assert model_of(name).eval()(pixels(name, images=0)).shape == (0, 10)


@families
def test_224_and_384_px_both_work(name: str) -> None:
    """With the settings of the paper, so without memory: shapes and numbers of tokens, not values."""
    size = {"size": replace(SIZES["ti"], depth=2)} if with_depth(name, 2) else {}
    for side in (224, 384):
        with torch.device("meta"):
            model = favor.create_model(name, img_size=side, num_classes=7, **size).eval()
            assert model(torch.zeros(1, 3, side, side)).shape == (1, 7)


@families
def test_compiles_without_a_break_in_the_graph_or_the_card_says_why(name: str) -> None:
    model = model_of(name, depth=1).eval()
    x = pixels(name)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        if favor.card(name).graph_breaks:
            with pytest.raises(torch._dynamo.exc.TorchDynamoException):
                compiled(x)
        else:
            expected = model(x)
            assert largest_difference(compiled(x), expected) < 1e-4 * float(expected.abs().max())
