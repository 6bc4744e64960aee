"""A Universal Transformer is a ViT whose blocks all have the same weights."""

import pytest
import torch

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.trace.counts import count
from favor.zoo.baseline.universal import UniversalEncoder
from favor.zoo.baseline.vit import vit
from favor.zoo.encoder import Size
from favor.zoo.weights import weights_to_save

OPTIONS = {"num_classes": 5, "img_size": (32, 32), "in_chans": 3, "drop_path": 0.0}
SMALL = Size(24, 3, 3)


def test_it_equals_a_vit_with_one_block_s_weights_in_every_block() -> None:
    universal = with_order_one_weights(UniversalEncoder(SMALL, **OPTIONS)).double().eval()
    same = vit(SMALL, **OPTIONS).double().eval()
    same.load_state_dict(universal.state_dict())
    x = images(2, 3, 32, 32, dtype=torch.float64)
    assert largest_difference(universal(x), same(x)) < 1e-12
    with mutated(same.blocks[1].mixer):
        assert largest_difference(universal(x), same(x)) > 1e-3


@pytest.mark.parametrize(("size", "parameters"), [("ti", 824_104), ("s", 2_531_944), ("b", 8_601_832)])
def test_it_has_one_block_s_parameters_and_the_multiply_adds_of_vit(size: str, parameters: int) -> None:
    universal, plain = count(f"universal_{size}16"), count(f"vit_{size}16")
    dim = {"ti": 192, "s": 384, "b": 768}[size]
    block = 12 * dim**2 + 15 * dim  # matrices; biases, two norms and two LayerScales
    assert universal.params == parameters == plain.params - 11 * block
    assert universal.macs == plain.macs


def test_its_block_is_saved_once_and_comes_back_in_every_depth() -> None:
    universal, other = UniversalEncoder(SMALL, **OPTIONS).eval(), UniversalEncoder(SMALL, **OPTIONS).eval()
    saved = weights_to_save(universal)
    assert not any(name.startswith(("blocks.1.", "blocks.2.")) for name in saved)
    favor.load_weights(other, saved)
    x = images(2, 3, 32, 32)
    assert torch.equal(other(x), universal(x))


def test_drop_path_is_the_same_at_every_depth() -> None:
    model = UniversalEncoder(SMALL, **{**OPTIONS, "drop_path": 0.2})
    assert len(model.blocks) == 3
    assert {block.drop_path.rate for block in model.blocks} == {0.2}


def test_its_card_ascribes_to_the_misnomer_paper_the_shared_parameters_only() -> None:
    (note,) = (note for note in favor.card("universal_s16").notes if "Misnomer" in note)
    assert "parameters are shared in depth, and nothing about the other two" in note
