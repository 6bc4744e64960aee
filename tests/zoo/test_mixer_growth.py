"""The work of a mixer grows with the tokens as its card claims, and no more slowly; its memory stays below N x N.

Work is counted at numbers of tokens at which nothing is rounded, so that a claim has to fit to a thousandth, and the
next smaller one must not.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import nn

import favor
from favor.trace.counts import per_image
from favor.trace.operator_trace import trace
from favor.zoo.encoder import Encoder, Size
from favor.zoo.registry import create_miniature

GROWTH: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "O(N)": lambda n: n,
    "O(N log N)": lambda n: n * np.log(n),
    "O(N^1.5)": lambda n: n**1.5,
    "O(N^2)": lambda n: n**2,
}
"""From the smallest to the largest."""
EXACT = 1e-3
NARROW, SMALL = Size(64, 1, 1), Size(384, 1, 6)

SQUARES = tuple((8 * side) ** 2 for side in range(1, 8))
"""Up to 3136, with whole roots, and whole chunks, clusters and landmarks."""
COUNTS = {
    "informer": (148, 403, 1096, 2980, 8103, 22026),  # just below powers of e: c ln(N) queries are a whole number
    "reformer": (512, 8192, 131_072, 2_097_152),  # 16, 16^2, ... buckets: every hash has 16
}
NETWORKS = {
    "halonet_h0": (256, 512, 768, 1024),
    "xcit_s12_p16": (224, 448, 672, 896),
    "mixer_s16": (224, 448, 672, 896),
}
"""Those that are not in the shell, and image sides at which their grids are made of whole blocks."""


def mixers_of_the_shell() -> dict[str, str]:
    """The families that replace the attention of the shell, and softmax attention itself."""
    found: dict[str, str] = {}
    for name in ("vit_s16", *favor.list_models("*_s16", where="token_mixing", origin="own")):
        with torch.device("meta"):
            if isinstance(favor.create_model(name), Encoder):
                found.setdefault(favor.card(name).family, name)
    return found


SHELL = mixers_of_the_shell()
BELOW_SQUARE = {family: name for family, name in SHELL.items() if favor.card(name).complexity != "O(N^2)"}


def mixer_of(name: str, size: Size, patches: tuple[int, int]) -> tuple[nn.Module, int]:
    """The mixer of a model for so many patches, without memory, and its number of tokens."""
    with torch.device("meta"):
        model = favor.create_model(name, size=size, img_size=(16 * patches[0], 16 * patches[1]))
    return model.blocks[0].mixer, model.tokens.count


def multiply_adds(part: nn.Module, *shape: int) -> int:
    return per_image(trace(part, torch.empty(1, *shape, device="meta")).ops, batch_size=1)["macs"]


def mixer_macs(name: str, counts: Sequence[int]) -> list[int]:
    """Multiply-adds of the mixer alone; a row of patches, the class token included, has any number of tokens."""
    macs = []
    for count in counts:
        mixer, tokens = mixer_of(name, NARROW, (1, count))
        if tokens > count:
            mixer, tokens = mixer_of(name, NARROW, (1, count - 1))
        assert tokens == count
        macs.append(multiply_adds(mixer, count, NARROW.dim))
    return macs


def misfit(n: np.ndarray, y: np.ndarray, claim: str) -> float:
    """The largest relative difference from the best a + b N + c f(N), f being what is claimed."""
    basis = np.stack([np.ones_like(n), n, GROWTH[claim](n)], axis=1)[:, : 2 if claim == "O(N)" else 3] / y[:, None]
    basis /= np.abs(basis).max(axis=0)
    return float(np.abs(basis @ np.linalg.lstsq(basis, np.ones_like(y), rcond=None)[0] - 1).max())


def grows_as(claim: str, counts: Sequence[int], macs: Sequence[int]) -> bool:
    """Whether a claim fits, and is the smallest that does."""
    n, y = np.array(counts, dtype=float), np.array(macs, dtype=float)
    smaller = list(GROWTH)[: list(GROWTH).index(claim)]
    return misfit(n, y, claim) < EXACT and all(misfit(n, y, other) > 2 * EXACT for other in smaller)


@pytest.mark.parametrize("family", SHELL)
def test_multiply_adds_of_a_mixer_grow_exactly_as_the_card_claims(family: str) -> None:
    counts = COUNTS.get(family, SQUARES)
    assert counts[-1] >= 3136
    macs = mixer_macs(SHELL[family], counts)
    claim = favor.card(SHELL[family]).complexity
    assert claim is not None
    assert grows_as(claim, counts, macs)
    assert not any(grows_as(other, counts, macs) for other in GROWTH if other != claim)


@pytest.mark.parametrize("name", NETWORKS)
def test_multiply_adds_of_a_network_grow_exactly_as_the_card_claims(name: str) -> None:
    macs = []
    for side in NETWORKS[name]:
        with torch.device("meta"):
            macs.append(multiply_adds(create_miniature(name, img_size=side), 3, side, side))
    assert favor.card(name).complexity == "O(N)"
    assert grows_as("O(N)", [side**2 for side in NETWORKS[name]], macs)


def live_bytes(part: nn.Module, *shape: int) -> int:
    """The most bytes that exist at one time in a forward pass besides the weights."""
    weights = sum(weight.numel() * weight.element_size() for weight in part.state_dict().values())
    return trace(part, torch.empty(1, *shape, device="meta")).peak_bytes - weights


def memory_of_mixer(name: str, side: int) -> tuple[int, int]:
    """Bytes of a mixer of size S, with its own settings, for so many patches a side; and the number of tokens."""
    mixer, tokens = mixer_of(name, SMALL, (side, side))
    return live_bytes(mixer, tokens, SMALL.dim), tokens


def matrix_bytes(tokens: int) -> int:
    """Bytes of the attention matrices of all heads."""
    return 4 * SMALL.heads * tokens**2


@pytest.mark.parametrize("family", BELOW_SQUARE)
def test_a_mixer_that_claims_to_avoid_the_matrix_needs_less_than_half_of_its_memory(family: str) -> None:
    used, tokens = memory_of_mixer(BELOW_SQUARE[family], 56)
    assert tokens >= 3136
    assert used < matrix_bytes(tokens) / 2
    used_before, tokens_before = memory_of_mixer(BELOW_SQUARE[family], 28)
    rate = math.log(used / used_before) / math.log(tokens / tokens_before)
    assert rate < (1.55 if favor.card(BELOW_SQUARE[family]).complexity == "O(N^1.5)" else 1.1)


@pytest.mark.parametrize("family", [family for family in SHELL if family not in BELOW_SQUARE])
def test_a_matrix_that_is_made_would_be_seen(family: str) -> None:
    used, tokens = memory_of_mixer(SHELL[family], 56)
    assert used > matrix_bytes(tokens)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_memory_of_a_network_grows_with_its_image_alone(name: str) -> None:
    sides = (512, 1024)
    used = []
    for side in sides:
        with torch.device("meta"):
            used.append(live_bytes(create_miniature(name, img_size=side), 3, side, side))
    assert used[1] / used[0] == pytest.approx(4, rel=0.1)
