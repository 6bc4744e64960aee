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


def narrow(name: str, side: int) -> torch.nn.Module:
    with torch.device("meta"):
        return create_miniature(name, img_size=side, size=NARROW).eval()


def shell_families() -> dict[str, str]:
    """The families of our own that plug a mixer into the shell and leave the sequence as long as it is."""
    found: dict[str, str] = {}
    for name in favor.list_models("*_s16", origin="own"):
        card = favor.card(name)
        if card.family not in found and card.where is not None and card.where.key in ("baseline", "token_mixing"):
            with torch.device("meta"):
                if isinstance(favor.create_model(name), Encoder):
                    found[card.family] = name
    return found


FAMILIES = shell_families()


@pytest.mark.parametrize("name", FAMILIES.values(), ids=FAMILIES.keys())
def test_multiply_adds_grow_as_the_card_claims(name: str) -> None:
    macs, tokens = [], []
    for side in SIDES:
        model = narrow(name, side)
        macs.append(count(model, img_size=side).macs)
        tokens.append(model.tokens.count)
    N, y = np.array(tokens, dtype=float), np.array(macs, dtype=float)
    assert N[-1] >= 3136
    claim = favor.card(name).complexity
    growth = {"O(N)": N, "O(N log N)": N * np.log2(N), "O(N^2)": N**2, "O(N^1.5)": N**1.5}
    assert claim in growth, f"{name} claims {claim}: add how that grows"
    # what remains at the largest size once a + b N is taken off, as a share of all multiply-adds
    quadratic = np.linalg.lstsq(np.stack([np.ones_like(N), N, N**2], axis=1), y, rcond=None)[0][2]
    share = quadratic * N[-1] ** 2 / y[-1]
    if claim == "O(N)":
        assert abs(share) < 0.01
    elif claim == "O(N^2)":
        assert share > 0.1
        basis = np.stack([np.ones_like(N), N, N**2], axis=1)
        fitted = basis @ np.linalg.lstsq(basis, y, rcond=None)[0]
        assert np.abs(fitted / y - 1).max() < 0.01
    else:
        basis = np.stack([np.ones_like(N), N, growth[claim]], axis=1)
        fitted = basis @ np.linalg.lstsq(basis, y, rcond=None)[0]
        assert np.abs(fitted / y - 1).max() < 0.02
        assert share < 0.3, "grows like a square"


@pytest.mark.parametrize("name", FAMILIES.values(), ids=FAMILIES.keys())
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
