"""SLAB equals its explicit kernel matrix plus a convolution, and is trained from LayerNorm to a foldable batch norm."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.encoder import Size
from favor.zoo.fuse import fuse, inference_form
from favor.zoo.mixing.kernel.slab import ProgressiveNorm, RepBatchNorm, SlabMixer
from favor.zoo.registry import create_miniature
from favor.zoo.slots import Tokens
from favor.zoo.training import tell_progress
from favor.zoo.weights import load_weights

TOKENS = Tokens(4, 5, class_token=False)


def test_it_is_the_explicit_kernel_matrix_plus_its_depthwise_convolution() -> None:
    mixer = with_order_one_weights(SlabMixer(24, 3, TOKENS)).double()
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    q, k, v = mixer.split(x)
    places = mixer.key_positions[0].unflatten(1, (3, 8)).transpose(0, 1)
    matrix = q.clamp_min(0) @ (k + places).clamp_min(0).mT
    attended = matrix @ v / (matrix.sum(dim=-1, keepdim=True) + 1e-6)
    per_head = [mixer.depthwise(v[:, head].mT.unflatten(2, (4, 5))).flatten(2).mT for head in range(3)]
    expected = mixer.proj(mixer.join(attended + torch.stack(per_head, dim=1)))
    assert largest_difference(mixer(x), expected) < 1e-12
    with mutated(mixer):
        assert largest_difference(mixer(x), expected) > 1e-3


def test_the_batch_norm_s_inference_form_is_batch_norm_plus_a_multiple_of_the_input() -> None:
    norm = with_order_one_weights(RepBatchNorm(24)).double()
    x = 2 + 3 * images(4, 10, 24, dtype=torch.float64)
    for _ in range(3):
        norm(x)
    norm.eval()
    expected = norm.batch_norm(x.mT).mT + norm.alpha * x
    assert largest_difference(norm(x), expected) < 1e-12
    with mutated(norm):
        assert largest_difference(norm(x), expected) > 1e-3


@pytest.mark.parametrize("until", [0.16, 1.0])
@pytest.mark.parametrize(("progress", "share"), [(0.0, 1.0), (0.25, 0.75), (1.0, 0.0)])
def test_the_share_of_layer_norm_falls_from_one_to_zero(until: float, progress: float, share: float) -> None:
    norm = with_order_one_weights(ProgressiveNorm(24, until)).train()
    x = images(4, 10, 24)
    tell_progress(norm, progress * until)
    layer = F.layer_norm(x, (24,), norm.layer_norm.weight, norm.layer_norm.bias, 1e-6)
    expected = share * layer + (1 - share) * norm.rep_norm(x)
    assert largest_difference(norm(x), expected) < 1e-5
    tell_progress(norm, 0.5 * until)
    assert largest_difference(norm(x), expected) > 1e-3


def test_layer_norm_is_gone_after_the_authors_60_000_of_375_342_steps() -> None:
    """ImageNet's 1,281,167 images in batches of 1024, 300 times."""
    steps = 300 * 1_281_167 // 1024
    norm = create_miniature("slab_s16").norm
    shares = []
    for step in (0, 30_000, 60_100, steps):
        tell_progress(norm, step / steps)
        shares.append(float(norm.layer_norm_share))
    assert shares == pytest.approx([1.0, 0.5, 0.0, 0.0], abs=1e-3)


@pytest.mark.parametrize("until", [0.0, 1.5])
def test_a_share_of_training_outside_of_0_to_1_is_refused(until: float) -> None:
    with pytest.raises(RequestError, match="layer_norm_until is a share of training"):
        create_miniature("slab_s16", layer_norm_until=until)


def test_the_share_is_saved_with_the_weights() -> None:
    norm = ProgressiveNorm(24)
    tell_progress(norm, 0.75 * norm.until)
    other = ProgressiveNorm(24)
    other.load_state_dict(norm.state_dict())
    assert float(other.layer_norm_share) == 0.25


def test_trained_from_start_to_end_it_learns_and_its_fused_form_gives_the_same_outputs() -> None:
    torch.manual_seed(0)
    model = create_miniature("slab_s16", num_classes=4)
    x, labels = images(16, 3, 64, 64), torch.arange(16) % 4
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    learned: set[str] = set()
    losses = []
    steps = 40
    for step in range(steps):
        tell_progress(model, step / (steps - 1))
        loss = F.cross_entropy(model.train()(x), labels)
        optimizer.zero_grad()
        loss.backward()
        learned |= {name for name, weight in model.named_parameters() if weight.grad is not None and weight.grad.any()}
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert learned == {name for name, _ in model.named_parameters()}

    model.eval()
    fused = fuse(model)
    assert not any(isinstance(part, ProgressiveNorm | nn.LayerNorm | nn.BatchNorm1d) for part in fused.modules())
    assert not inference_form(fused)[1]
    with torch.no_grad():
        assert largest_difference(fused(x), model(x)) < 1e-4
        assert float(F.cross_entropy(fused(x), labels)) < 0.7 * losses[0]
        with mutated(fused.blocks[0].mixer):
            assert largest_difference(fused(x), model(x)) > 1e-4


def test_the_fused_form_is_exact_with_weights_of_order_one() -> None:
    model = with_order_one_weights(create_miniature("slab_s16")).double().train()
    x = images(4, 3, 64, 64, dtype=torch.float64)
    tell_progress(model, 1.0)
    for _ in range(5):
        model(x)
    fused = fuse(model)
    model.eval()
    with torch.no_grad():
        scale = float(model(x).abs().max())
        assert largest_difference(fused(x), model(x)) < 1e-10 * scale
        with mutated(fused.blocks[1].mixer):
            assert largest_difference(fused(x), model(x)) > 1e-3 * scale


def test_fusing_leaves_the_model_as_it_was() -> None:
    model = create_miniature("slab_s16").eval()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    model.fuse()
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_weights_of_224_px_are_resampled_to_384_px() -> None:
    small = favor.create_model("slab_s16", size=Size(48, 1, 3))
    large = favor.create_model("slab_s16", size=Size(48, 1, 3), img_size=384).eval()
    nn.init.constant_(small.blocks[0].mixer.key_positions, 0.5)
    loaded = load_weights(large, small.state_dict())
    assert loaded.resampled == ("positions.weight", "blocks.0.mixer.key_positions")
    positions = large.blocks[0].mixer.key_positions
    assert torch.allclose(positions, torch.full((1, 24 * 24, 48), 0.5))
    with torch.no_grad():
        assert fuse(large)(images(1, 3, 384, 384)).shape == (1, 1000)


def test_a_class_token_is_refused() -> None:
    with pytest.raises(RequestError, match="MeanPool"):
        SlabMixer(24, 3, Tokens(4, 4, class_token=True))


@pytest.mark.parametrize(("name", "parameters"), [("slab_ti16", 6_202_817), ("slab_s16", 23_001_473)])
def test_it_has_the_parameters_of_the_benchmark(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = favor.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
