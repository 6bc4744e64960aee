"""The laptop ladders of depth and width have the costs of a closed form, and their ends overlap in cost."""

import pytest

import favor
from favor.trace.counts import Counts, count

CLASSES = 10
TOKENS = 64 + 1
PLAIN = {
    "vit_xs4": (96, 4),
    **{f"vit_xs4_d{depth}": (96, depth) for depth in (2, 3, 6, 8)},
    **{f"vit_xs4_w{dim}": (dim, 4) for dim in (64, 128, 160)},
}
EXPERTS = 4


def counted(name: str) -> Counts:
    return count(name, img_size=32, num_classes=CLASSES)


def block(dim: int) -> int:
    """Parameters of a block: attention and MLP of twice the width, their biases, and two norms."""
    return 8 * dim**2 + 7 * dim + 4 * dim


def around_blocks(dim: int) -> int:
    """Parameters of patches of 4 x 4 x 3 values, class token, 64 positions, the last norm, and the head."""
    return (48 + 1) * dim + dim + 64 * dim + 2 * dim + (dim + 1) * CLASSES


def macs(dim: int, depth: int) -> int:
    """Multiply-adds of the embedding, of weights and attention in each block, and of the head."""
    return 64 * 48 * dim + depth * (TOKENS * 8 * dim**2 + 2 * TOKENS**2 * dim) + dim * CLASSES


@pytest.mark.parametrize(("name", "dim", "depth"), [(name, *size) for name, size in PLAIN.items()])
def test_a_plain_model_has_the_counts_of_the_closed_form(name: str, dim: int, depth: int) -> None:
    counts = counted(name)
    assert counts.params == around_blocks(dim) + depth * block(dim)
    assert counts.macs == macs(dim, depth)


@pytest.mark.parametrize("dim", [96, 160])
def test_shared_blocks_are_counted_once_and_computed_four_times(dim: int) -> None:
    counts = counted(f"universal_xs4_w{dim}")
    assert counts.params == around_blocks(dim) + block(dim)
    assert counts.macs == macs(dim, 4)


@pytest.mark.parametrize(("name", "dim"), [("switch_xs4", 96), ("switch_xs4_w64", 64)])
def test_experts_add_parameters_and_only_the_router_adds_multiply_adds(name: str, dim: int) -> None:
    counts = counted(name)
    mlp, router = 4 * dim**2 + 3 * dim, (dim + 1) * EXPERTS
    assert counts.params == around_blocks(dim) + 4 * (block(dim) + (EXPERTS - 1) * mlp + router)
    assert counts.macs == macs(dim, 4) + 4 * TOKENS * dim * EXPERTS


def test_the_ladders_cover_a_common_range_of_parameters_and_multiply_adds() -> None:
    for depths, widths in (
        ([counted(f"vit_xs4_d{d}").params for d in (2, 8)], [counted(f"vit_xs4_w{w}").params for w in (64, 160)]),
        ([counted(f"vit_xs4_d{d}").macs for d in (2, 8)], [counted(f"vit_xs4_w{w}").macs for w in (64, 160)]),
    ):
        assert max(depths[0], widths[0]) * 3 < min(depths[1], widths[1])


def test_cards_state_the_size_and_all_use_patches_of_four_pixels() -> None:
    assert "8 blocks of width 96, 3 heads, MLPs of width 192" in favor.card("vit_xs4_d8").notes[0]
    assert "4 blocks of width 160, 5 heads, MLPs of width 320" in favor.card("universal_xs4_w160").notes[0]
    for name in (*PLAIN, "universal_xs4_w96", "switch_xs4_w64"):
        assert favor.card(name).image_sizes.default == 32
