"""Half precision, other image sizes, and graphs without a break: for every architecture of our own."""

import pytest
import torch
from torch import nn

import favor
from favor.zoo.registry import create_miniature
from favor.zoo.training import take_extra_losses

OWN = {favor.card(name).family: name for name in reversed(favor.list_models(origin="own"))}
own_families = pytest.mark.parametrize("name", OWN.values(), ids=OWN.keys())


def side_of(name: str) -> int:
    from favor.zoo.registry import _entry

    return int(_entry(name).miniature["img_size"])  # type: ignore[call-overload]


@own_families
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_half_precision_gives_finite_outputs_and_gradients(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = create_miniature(name).train()
    side = side_of(name)
    # pixels as large as normalised images have them
    x = 2 * torch.randn(2, 3, side, side)
    with torch.autocast("cpu", dtype=dtype):
        logits = model(x)
        loss = nn.functional.cross_entropy(logits.float(), torch.tensor([0, 1])) + sum(
            take_extra_losses(model).values()
        )
    loss.backward()
    assert logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        assert model.eval()(x).isfinite().all()


@own_families
def test_224_and_384_px_both_work(name: str) -> None:
    for side in (224, 384):
        with torch.device("meta"):
            model = favor.create_model(name, img_size=side, num_classes=7).eval()
            assert model(torch.zeros(1, 3, side, side)).shape == (1, 7)


@own_families
def test_compiles_without_a_break_in_the_graph_or_the_card_says_why(name: str) -> None:
    model = create_miniature(name).eval()
    side = side_of(name)
    x = torch.randn(2, 3, side, side)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        if favor.card(name).graph_breaks:
            with pytest.raises(torch._dynamo.exc.TorchDynamoException):
                compiled(x)
        else:
            assert torch.allclose(compiled(x), model(x), atol=1e-5)
