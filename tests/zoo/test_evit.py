"""EViT keeps the patches that the class token attends to, 70 % three times, and equals ViT when it keeps all."""

import math

import pytest
import torch

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.trace.counts import count
from favor.zoo.encoder import Size
from favor.zoo.layers import take_tokens
from favor.zoo.sequence.removal.evit import KeepAttentive, kept_patches, quarter
from favor.zoo.slots import Flow, Seen
from favor.zoo.training import tell_progress
from tokens import token_counts

SMALL = Size(48, 4, 3)


@pytest.mark.parametrize("name", ["evit_s16", "evit_fuse_s16"])
def test_keeping_all_patches_is_plain_vit(name: str) -> None:
    settings = {"size": SMALL, "img_size": 64}
    vit = favor.create_model("vit_s16", **settings, layer_scale=None, class_position=True)
    vit = with_order_one_weights(vit.double()).eval()
    model = favor.create_model(name, **settings, keep=1.0).double().eval()
    model.load_state_dict(vit.state_dict())
    x = images(2, 3, 64, 64, dtype=torch.float64)
    assert largest_difference(model(x), vit(x)) < 1e-10
    with mutated(model.blocks[1].mixer.proj):
        assert largest_difference(model(x), vit(x)) > 1e-3


def test_the_sequence_shrinks_in_blocks_4_7_and_10() -> None:
    model = favor.create_model("evit_s16", size=Size(48, 12, 3)).eval()
    assert token_counts(model, images(1, 3, 224, 224)) == [197] * 3 + [139] * 3 + [98] * 3 + [69] * 3


def test_at_384_px_it_keeps_the_same_shares() -> None:
    model = favor.create_model("evit_s16", size=Size(48, 12, 3), img_size=384).eval()
    assert token_counts(model, images(1, 3, 384, 384)) == [577] * 3 + [405] * 3 + [284] * 3 + [200] * 3


def test_the_places_scale_with_the_depth() -> None:
    assert [index for index in range(24) if quarter(index, 24) is not None] == [6, 12, 18]
    assert [quarter(index, 4) for index in range(4)] == [None, 0, 1, 2]


def test_shares_of_whole_numbers_are_not_rounded_up_by_floating_point() -> None:
    assert [kept_patches(10 * tens, 0.7) for tens in range(1, 60)] == [7 * tens for tens in range(1, 60)]


def test_the_patches_with_the_highest_mean_attention_stay() -> None:
    x = torch.arange(6.0)[None, :, None].repeat(1, 1, 2)
    rows = torch.tensor([[[0.9, 0.0, 0.1, 0.2, 0.0, 0.3], [0.1, 0.3, 0.0, 0.2, 0.0, 0.5]]])
    kept = KeepAttentive(0.5).eval().between(x, Seen(keys=x, class_row=rows), Flow())
    assert kept[0, 0, 0] == 0
    assert sorted(kept[0, 1:, 0].tolist()) == [1, 3, 5]


def test_tokens_are_taken_from_their_own_image() -> None:
    x = images(3, 7, 5)
    index = torch.tensor([[6, 0], [1, 1], [2, 5]])
    assert torch.equal(take_tokens(x, index), torch.stack([x[i][index[i]] for i in range(3)]))


def test_training_drops_more_and_more_patches_and_evaluation_always_all_of_them() -> None:
    model = favor.create_model("evit_s16", size=SMALL, img_size=64)
    reducer = model.blocks[1].reducer
    assert reducer.keep_in_training == 0.7
    shares = []
    for fraction in (0.0, 10 / 300, 35 / 300, 60 / 300, 110 / 300, 1.0):
        tell_progress(model, fraction)
        shares.append(reducer.keep_in_training)
    quarter = 0.7 + 0.3 * (1 + math.cos(math.pi / 4)) / 2
    assert shares == pytest.approx([1.0, 1.0, quarter, 0.85, 0.7, 0.7])
    tell_progress(model, 0.0)
    assert token_counts(model.train(), images(1, 3, 64, 64)) == [17, 17, 17, 17]
    model = favor.create_model("evit_s16", size=SMALL, img_size=64)
    tell_progress(model, 0.0)
    assert token_counts(model.eval(), images(1, 3, 64, 64)) == [17, 13, 10, 8]


@pytest.mark.parametrize("name", ["evit_s16", "evit_fuse_s16"])
def test_the_part_of_training_in_which_the_share_falls_is_a_setting(name: str) -> None:
    model = favor.create_model(name, size=SMALL, img_size=64, keep=0.5, shrink=(0.2, 0.6))
    shares = []
    for fraction in (0.2, 0.4, 0.6):
        tell_progress(model, fraction)
        shares.append(model.blocks[1].reducer.keep_in_training)
    assert shares == pytest.approx([1.0, 0.75, 0.5])
    with pytest.raises(RequestError, match="shrink is the start and the end of a part of training"):
        favor.create_model(name, size=SMALL, img_size=64, shrink=(0.6, 0.2))


def test_a_keep_rate_outside_of_0_to_1_is_refused() -> None:
    for keep in (0.0, 1.1):
        with pytest.raises(RequestError, match="share of patches"):
            favor.create_model("evit_s16", size=SMALL, keep=keep)


def test_counts_are_those_of_the_paper() -> None:
    """Parameters as in the benchmark; the paper gives 3.0 G for DeiT-S at 0.7, a third less than 4.6 G."""
    for size, expected in (("ti", 5_717_416), ("s", 22_050_664), ("b", 86_567_656)):
        with torch.device("meta"):
            model = favor.create_model(f"evit_{size}16")
        assert sum(parameter.numel() for parameter in model.parameters()) == expected
    assert count("evit_s16").macs_matmul == pytest.approx(3.0e9, rel=0.01)
