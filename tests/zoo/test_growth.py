"""Multiply-adds of a whole network grow with its image as the card claims."""

import numpy as np
import pytest
import torch

import favor
from favor.trace.counts import count
from favor.zoo.encoder import Encoder
from favor.zoo.registry import create_miniature
from favor.zoo.taxonomy import How, Where

SIDES = (224, 448, 672, 896)
AREAS = np.array([(side // 16) ** 2 for side in SIDES], dtype=float)

FAMILIES = {favor.card(name).family: name for name in reversed(favor.list_models())}
TOKENS_DO_NOT_GROW_WITH_THE_IMAGE = {"vix"}
"""A grid of one number of tokens, whose patches grow with the image."""


def has_a_mixer_in_the_shell(name: str) -> bool:
    """Those are counted alone, and to a thousandth, in `test_mixer_growth`."""
    with torch.device("meta"):
        return favor.card(name).how in MIXING and isinstance(favor.create_model(name), Encoder)


MIXING = [how for how in How if how.where is Where.TOKEN_MIXING]
OTHERS = {
    family: name
    for family, name in FAMILIES.items()
    if family not in TOKENS_DO_NOT_GROW_WITH_THE_IMAGE and not has_a_mixer_in_the_shell(name)
}
"""Baselines, hierarchies, networks of timm, and those that change the sequence or the MLP."""


def square_share(tokens: np.ndarray, macs: np.ndarray) -> float:
    """What N^2 makes of all multiply-adds at the largest size, in the best a + b N + c N^2."""
    basis = np.stack([np.ones_like(tokens), tokens, tokens**2], axis=1)
    return float(np.linalg.lstsq(basis, macs, rcond=None)[0][2] * tokens[-1] ** 2 / macs[-1])


def check_claim(claim: str | None, tokens: np.ndarray, macs: np.ndarray) -> None:
    assert claim in ("O(N)", "O(N^2)"), f"{claim} is claimed: add how that grows"
    if claim == "O(N)":
        # below zero: where a grid is padded to whole windows, small images cost more than their share
        assert -0.05 < square_share(tokens, macs) < 0.01
    else:
        basis = np.stack([np.ones_like(tokens), tokens, tokens**2], axis=1)
        fitted = basis @ np.linalg.lstsq(basis, macs, rcond=None)[0]
        assert square_share(tokens, macs) > 0.1
        assert np.abs(fitted / macs - 1).max() < 0.01


@pytest.mark.parametrize("name", OTHERS.values(), ids=OTHERS.keys())
def test_multiply_adds_of_a_network_grow_with_its_image_as_the_card_claims(name: str) -> None:
    """Whatever the stages, the number of tokens in each is a share of the image's area."""
    macs = []
    for side in SIDES:
        with torch.device("meta"):
            model = create_miniature(name, img_size=side).eval()
        macs.append(count(model, img_size=side).macs)
    check_claim(favor.card(name).complexity, AREAS, np.array(macs, dtype=float))


def test_a_window_that_grows_with_the_image_would_be_seen() -> None:
    macs = []
    for side in SIDES:
        network = {"window_size": side // 32, "depths": (2, 2), "embed_dim": 24, "num_heads": (1, 2)}
        with torch.device("meta"):
            model = create_miniature("swin_ti", img_size=side, network=network).eval()
        macs.append(count(model, img_size=side).macs)
    with pytest.raises(AssertionError):
        check_claim("O(N)", AREAS, np.array(macs, dtype=float))
