"""Multiply-adds grow with the tokens as the card claims, and no mixer makes the matrix that it claims to avoid."""

import math

import numpy as np
import pytest
import torch

import favor
from favor.measure.count import count
from favor.measure.trace import trace
from favor.zoo.encoder import Encoder, Size
from favor.zoo.registry import create_miniature

NARROW = Size(64, 2, 1)
SIDES = (224, 448, 672, 896)
AREAS = np.array([(side // 16) ** 2 for side in SIDES], dtype=float)

FAMILIES = {favor.card(name).family: name for name in reversed(favor.list_models())}
TOKENS_DO_NOT_GROW_WITH_THE_IMAGE = {"vix"}
"""A grid of one number of tokens, whose patches grow with the image."""


def mixers_in_the_shell() -> dict[str, str]:
    """The families of our own that plug a mixer into the shell and leave the sequence as long as it is."""
    found: dict[str, str] = {}
    for name in favor.list_models("*_s16", origin="own"):
        card = favor.card(name)
        if card.family not in found and card.where is not None and card.where.key in ("baseline", "token_mixing"):
            with torch.device("meta"):
                if isinstance(favor.create_model(name), Encoder):
                    found[card.family] = name
    return found


MIXERS = mixers_in_the_shell()
OTHERS = {
    family: name
    for family, name in FAMILIES.items()
    if family not in MIXERS and family not in TOKENS_DO_NOT_GROW_WITH_THE_IMAGE
}
"""Hierarchies, networks of timm, and those that change the sequence or the MLP."""


def narrow(name: str, side: int) -> torch.nn.Module:
    with torch.device("meta"):
        return create_miniature(name, img_size=side, size=NARROW).eval()


def square_share(tokens: np.ndarray, macs: np.ndarray) -> float:
    """What N^2 makes of all multiply-adds at the largest size, in the best a + b N + c N^2."""
    basis = np.stack([np.ones_like(tokens), tokens, tokens**2], axis=1)
    return float(np.linalg.lstsq(basis, macs, rcond=None)[0][2] * tokens[-1] ** 2 / macs[-1])


def misfit(tokens: np.ndarray, macs: np.ndarray, term: np.ndarray) -> float:
    """The largest relative difference from the best a + b N + c `term`."""
    basis = np.stack([np.ones_like(tokens), tokens, term], axis=1)
    return float(np.abs(basis @ np.linalg.lstsq(basis, macs, rcond=None)[0] / macs - 1).max())


def check_claim(claim: str | None, tokens: np.ndarray, macs: np.ndarray) -> None:
    growth = {
        "O(N)": tokens,
        "O(N log N)": tokens * np.log2(tokens),
        "O(N^2)": tokens**2,
        "O(N^1.5)": tokens**1.5,
    }
    assert claim in growth, f"{claim} is claimed: add how that grows"
    if claim == "O(N)":
        # below zero: where a grid is padded to whole windows, small images cost more than their share
        assert -0.05 < square_share(tokens, macs) < 0.01
    elif claim == "O(N^2)":
        assert square_share(tokens, macs) > 0.1
        assert misfit(tokens, macs, tokens**2) < 0.01
    else:
        assert misfit(tokens, macs, growth[claim]) < 0.02
        assert square_share(tokens, macs) < 0.3, "grows like a square"


@pytest.mark.parametrize("name", MIXERS.values(), ids=MIXERS.keys())
def test_multiply_adds_of_a_mixer_grow_as_the_card_claims(name: str) -> None:
    models = [narrow(name, side) for side in SIDES]
    tokens = np.array([model.tokens.count for model in models], dtype=float)
    assert tokens[-1] >= 3136
    macs = [count(model, img_size=side).macs for model, side in zip(models, SIDES, strict=True)]
    check_claim(favor.card(name).complexity, tokens, np.array(macs, dtype=float))


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


@pytest.mark.parametrize("name", MIXERS.values(), ids=MIXERS.keys())
def test_no_tensor_grows_like_the_matrix_that_is_avoided(name: str) -> None:
    tokens, largest = [], []
    for side in (448, 896):
        model = narrow(name, side)
        ops = trace(model, torch.empty(1, 3, side, side, device="meta")).ops
        tokens.append(model.tokens.count)
        largest.append(max(math.prod(spec.shape) for op in ops for spec in op.outputs))
    growth = math.log(largest[1] / largest[0]) / math.log(tokens[1] / tokens[0])
    if favor.card(name).complexity in ("O(N)", "O(N log N)"):
        assert growth < 1.3
        assert largest[1] < tokens[1] ** 2
    elif favor.card(name).family == "vit":
        assert growth > 1.9, "the test would see it"
