"""ToMe merges r tokens a block, by similarity, and equals ViT when it merges none."""

import torch
from equality import images, largest_difference, mutated, with_order_one_weights

import favor
from favor.zoo.encoder import Size
from favor.zoo.sequence.merging.tome import match, merge

SMALL = Size(48, 4, 3)


def token_counts(model: torch.nn.Module, x: torch.Tensor) -> list[int]:
    """The number of tokens that each block's MLP sees."""
    seen: list[int] = []
    handles = [
        block.mlp.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[1]))
        for block in model.blocks
    ]
    model(x)
    for handle in handles:
        handle.remove()
    return seen


def test_merging_nothing_is_plain_vit() -> None:
    vit = with_order_one_weights(favor.create_model("vit_s16", size=SMALL, img_size=64)).eval()
    tome = favor.create_model("tome_r8_s16", size=SMALL, img_size=64, r=0).eval()
    tome.load_state_dict(vit.state_dict())
    x = images(2, 3, 64, 64)
    assert largest_difference(tome(x), vit(x)) < 1e-6
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
    kept, merged, target = match(keys, r=1)
    assert merged.tolist() == [[2]]  # the third even token
    assert target.tolist() == [[2]]  # the third odd token
    assert kept.tolist() == [[0, 1, 3]]


def test_merging_keeps_the_sum_over_all_tokens() -> None:
    x = images(2, 9, 5)
    kept, merged, target = match(x, r=3)
    assert torch.allclose(merge(x, kept, merged, target).sum(dim=1), x.sum(dim=1), atol=1e-5)
