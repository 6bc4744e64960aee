"""EViT-fuse turns the patches that EViT drops into one more token."""

import pytest
import torch

import favor
from equality import images
from favor.trace.counts import count
from favor.zoo.encoder import Size
from favor.zoo.sequence.merging.evit_fuse import FuseInattentive
from favor.zoo.slots import Flow, Seen
from tokens import token_counts


def test_the_sequence_shrinks_to_the_kept_patches_and_one_fused_token() -> None:
    model = favor.create_model("evit_fuse_s16", size=Size(48, 12, 3)).eval()
    assert token_counts(model, images(1, 3, 224, 224)) == [197] * 3 + [140] * 3 + [100] * 3 + [72] * 3


def test_the_fused_token_is_the_sum_of_the_others_weighed_by_attention() -> None:
    x = images(2, 5, 3)
    row = torch.tensor([0.1, 0.4, 0.2, 0.05, 0.25]).expand(2, 3, -1)
    y = FuseInattentive(0.5).eval().between(x, Seen(keys=x, class_row=row), Flow())
    assert torch.allclose(y[:, :3], x[:, [0, 1, 4]])
    assert torch.allclose(y[:, 3], 0.2 * x[:, 2] + 0.05 * x[:, 3])
    assert not torch.allclose(y[:, 3], 0.2 * x[:, 2])


def test_the_weights_of_the_fused_patches_learn() -> None:
    x, logits = images(2, 5, 3), images(2, 3, 5, seed=2).requires_grad_()
    FuseInattentive(0.5).between(x, Seen(keys=x, class_row=logits.softmax(dim=-1)), Flow()).sum().backward()
    assert logits.grad is not None
    assert logits.grad.abs().sum() > 0


def test_counts_are_those_of_the_paper() -> None:
    """Parameters as in the benchmark; the paper gives 3.0 G for DeiT-S at 0.7."""
    counts = count("evit_fuse_s16")
    assert counts.params == 22_050_664
    assert counts.macs_matmul == pytest.approx(3.0e9, rel=0.02)
