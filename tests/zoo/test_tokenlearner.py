"""TokenLearner condenses the patches into 8 tokens in the middle of the network; with identity maps it is ViT."""

import pytest
import torch
from torch import Tensor

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.trace.counts import count
from favor.zoo.encoder import Size
from favor.zoo.sequence.summary.tokenlearner import LearnTokens
from favor.zoo.slots import Flow
from tokens import token_counts

SMALL = Size(48, 4, 3)


def test_with_identity_maps_it_is_plain_vit(monkeypatch: pytest.MonkeyPatch) -> None:
    vit = with_order_one_weights(favor.create_model("vit_s16", size=SMALL, img_size=64).double()).eval()
    model = favor.create_model("tokenlearner_8_50_s16", size=SMALL, img_size=64).double().eval()
    missing, unknown = model.load_state_dict(vit.state_dict(), strict=False)
    assert not unknown
    assert all("reducer.draw" in name for name in missing)
    x = images(2, 3, 64, 64, dtype=torch.float64)
    assert largest_difference(model(x), vit(x)) > 1e-3, "its own maps are not the identity"

    def identity(self: LearnTokens, patches: Tensor) -> Tensor:
        return torch.eye(patches.shape[1], dtype=patches.dtype).expand(len(patches), -1, -1)

    monkeypatch.setattr(LearnTokens, "maps", identity)
    assert largest_difference(model(x), vit(x)) < 1e-10
    with mutated(model.blocks[3].mixer):
        assert largest_difference(model(x), vit(x)) > 1e-3


def test_eight_tokens_are_left_after_half_or_three_quarters_of_the_blocks() -> None:
    for name, expected in (
        ("tokenlearner_8_50_s16", [197] * 6 + [9] * 6),
        ("tokenlearner_8_75_s16", [197] * 9 + [9] * 3),
    ):
        model = favor.create_model(name, size=Size(48, 12, 3)).eval()
        assert token_counts(model, images(1, 3, 224, 224)) == expected


def test_a_new_token_is_a_mean_of_the_patches_and_the_class_token_stays() -> None:
    learn = with_order_one_weights(LearnTokens(24, 32, 8))
    x = images(2, 17, 24)
    maps = learn.maps(x[:, 1:])
    y = learn.before(x, Flow())
    assert torch.allclose(maps.sum(dim=-1), torch.ones(2, 8))
    assert y.shape == (2, 9, 24)
    assert torch.equal(y[:, 0], x[:, 0])
    assert torch.allclose(y[1, 5], sum(maps[1, 4, i] * x[1, 1 + i] for i in range(16)), atol=1e-5)


def test_every_block_has_its_own_weights() -> None:
    model = favor.create_model("tokenlearner_8_50_s16", size=SMALL, img_size=64)
    assert len({id(block.mixer.qkv.weight) for block in model.blocks}) == 4


def test_a_place_after_the_last_block_is_refused() -> None:
    with pytest.raises(RequestError, match="share of blocks"):
        favor.create_model("tokenlearner_8_50_s16", size=SMALL, after=1.0)


def test_counts_are_those_of_distinct_blocks() -> None:
    """22,663,920: the benchmark's configuration with distinct blocks; its MACs at 50 % are those of our count."""
    half, three_quarters = count("tokenlearner_8_50_s16"), count("tokenlearner_8_75_s16")
    assert half.params == three_quarters.params == 22_663_920
    assert half.macs_matmul == pytest.approx(2.5451e9, rel=0.005)
    assert half.macs_matmul < three_quarters.macs_matmul < 3.7e9


def test_reused_blocks_are_those_of_a_vit_whose_second_half_has_the_weights_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vit = with_order_one_weights(favor.create_model("vit_s16", size=SMALL, img_size=64).double()).eval()
    for first, second in ((0, 2), (1, 3)):
        vit.blocks[second].load_state_dict(vit.blocks[first].state_dict())
    model = favor.create_model("tokenlearner_8_50_s16(reuse_blocks=True)", size=SMALL, img_size=64).double().eval()
    own = {name: weight for name, weight in vit.state_dict().items() if name in model.state_dict()}
    missing, _ = model.load_state_dict(own, strict=False)
    assert all(name.startswith("learn.") for name in missing)
    x = images(2, 3, 64, 64, dtype=torch.float64)
    assert largest_difference(model(x), vit(x)) > 1e-3, "its own maps are not the identity"
    monkeypatch.setattr(LearnTokens, "maps", lambda self, patches: torch.eye(patches.shape[1], dtype=patches.dtype))
    assert largest_difference(model(x), vit(x)) < 1e-10
    with mutated(model.blocks[1].mixer):
        assert largest_difference(model(x), vit(x)) > 1e-3


def test_blocks_are_reused_only_if_one_stands_before_the_new_tokens() -> None:
    with pytest.raises(RequestError, match="reuse_blocks needs a block before the new tokens"):
        favor.create_model("tokenlearner_8_50_s16", size=SMALL, after=0.2, reuse_blocks=True)
