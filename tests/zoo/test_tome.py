"""ToMe merges r tokens a block, by similarity, and equals ViT when it merges none."""

import pytest
import torch

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.trace.counts import count
from favor.zoo.encoder import Size
from favor.zoo.sequence.merging.tome import match, merge
from tokens import token_counts

SMALL = Size(48, 4, 3)


def test_merging_nothing_is_plain_vit() -> None:
    vit = with_order_one_weights(favor.create_model("vit_s16", size=SMALL, img_size=64).double()).eval()
    tome = favor.create_model("tome_r8_s16", size=SMALL, img_size=64, r=0).double().eval()
    tome.load_state_dict(vit.state_dict())
    x = images(2, 3, 64, 64, dtype=torch.float64)
    assert largest_difference(tome(x), vit(x)) < 1e-10
    # with a reducer the block calls `attend`, which forward hooks do not see: mutate its projection
    with mutated(tome.blocks[1].mixer.proj):
        assert largest_difference(tome(x), vit(x)) > 1e-3


def test_every_block_has_r_tokens_less() -> None:
    model = favor.create_model("tome_r8_s16", size=Size(48, 12, 3))
    assert token_counts(model, images(1, 3, 224, 224)) == [197 - 8 * (i + 1) for i in range(12)]


def test_no_more_than_half_of_the_tokens_merge_and_the_class_token_stays() -> None:
    model = favor.create_model("tome_r8_s16", size=SMALL, img_size=64)
    assert token_counts(model, images(1, 3, 64, 64)) == [9, 5, 3, 2]


def test_the_most_similar_pair_is_merged() -> None:
    keys = torch.eye(8)[None].clone()
    keys[0, 4] = torch.tensor([0, 0, 0, 0.2, 0, 1.0, 0, 0])  # token 4 is almost token 5
    rest, merged, target = match(keys, r=1)
    assert merged.tolist() == [[4]]
    assert rest.tolist() == [[0, 2, 6, 1, 3, 5, 7]]
    assert target.tolist() == [[5]]  # where token 5 stands in the rest


def test_a_merged_token_is_the_mean_of_its_patches() -> None:
    x, sizes = images(1, 6, 3), torch.tensor([[1.0, 2.0, 3.0, 1.0, 4.0, 1.0]])
    rest, merged, target = torch.tensor([[0, 1, 3, 5]]), torch.tensor([[2, 4]]), torch.tensor([[1, 1]])
    tokens, new = merge(x, sizes, rest, merged, target)
    assert new.tolist() == [[1.0, 9.0, 1.0, 1.0]]
    assert torch.allclose(tokens[0, 1], (2 * x[0, 1] + 3 * x[0, 2] + 4 * x[0, 4]) / 9, atol=1e-6)
    assert torch.allclose(tokens[0, [0, 2, 3]], x[0, [0, 3, 5]])


def test_merging_keeps_the_sum_over_all_patches() -> None:
    x, sizes = images(2, 9, 5), 1 + images(2, 9, seed=3).abs()
    tokens, new = merge(x, sizes, *match(x, r=3))
    assert tokens.shape == (2, 6, 5)
    assert torch.allclose((tokens * new[..., None]).sum(dim=1), (x * sizes[..., None]).sum(dim=1), atol=1e-4)
    assert torch.allclose(new.sum(dim=1), sizes.sum(dim=1))


def test_counts_are_those_of_the_benchmark() -> None:
    eight, thirteen = count("tome_r8_s16"), count("tome_r13_s16")
    assert eight.params == thirteen.params == 22_059_496
    assert eight.macs_matmul == pytest.approx(3.4264e9, rel=0.005)
    assert thirteen.macs_matmul == pytest.approx(2.7103e9, rel=0.005)
