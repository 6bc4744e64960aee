"""What only training shows: initial values and the small numbers of the norms, where they are decided on a card."""

import math
import re

import pytest
import torch
from torch import nn

import favor
from favor.zoo.layers import LayerScale
from favor.zoo.mixing.sparse.wavevit import WaveletAttention
from favor.zoo.registry import create_miniature
from favor.zoo.relative_bias import RelativeBias

OWN = {favor.card(name).family: name for name in reversed(favor.list_models(origin="own"))}
"""Family -> its first model, of those that are not timm's."""
EPSILONS = {
    "cvt_13": {1e-5},
    "rest_s": {1e-5},
    "efficientmod_s": {1e-5},
    "wavevit_s": {1e-5, 1e-6},
    "stvit_swin_ti": {1e-6},
    "hivit_s16": {1e-6},
    "vit_s16": {1e-6},
    "fnet_s16": {1e-6},
    "gfnet_s16": {1e-6},
    "afno_s16": {1e-6},
}


@pytest.mark.parametrize("name", ["hivit_s16", "stvit_swin_ti"])
def test_biases_of_relative_positions_start_with_a_deviation_of_0_02(name: str) -> None:
    torch.manual_seed(0)
    tables = [part.table for part in create_miniature(name, img_size=224).modules() if isinstance(part, RelativeBias)]
    assert torch.cat([table.flatten() for table in tables]).std().item() == pytest.approx(0.02, rel=0.1)
    assert "0.02" in " ".join(favor.card("hivit_s16").notes)


def test_wave_vit_s_reductions_start_as_the_convolutions_of_1_x_1_that_they_are() -> None:
    torch.manual_seed(0)
    parts = [part for part in favor.create_model("wavevit_s").modules() if isinstance(part, WaveletAttention)]
    assert {part.q.in_features for part in parts} == {64, 128}
    for part in parts:
        width = part.q.in_features
        assert part.reduce[0].weight.std().item() == pytest.approx(math.sqrt(2 / (width // 4)), rel=0.1)
        assert part.reduce[0].bias.abs().max() == 0
        assert part.q.weight.std().item() == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize(("name", "epsilons"), EPSILONS.items())
def test_norms_have_the_epsilon_of_the_authors_or_the_one_that_the_card_gives(name: str, epsilons: set[float]) -> None:
    with torch.device("meta"):
        model = favor.create_model(name)
    assert {part.eps for part in model.modules() if isinstance(part, nn.LayerNorm)} == epsilons


def test_wave_vit_s_norms_have_1e_5_after_embeddings_and_before_keys_and_values() -> None:
    with torch.device("meta"):
        model = favor.create_model("wavevit_s")
    small = {name for name, part in model.named_modules() if isinstance(part, nn.LayerNorm) and part.eps == 1e-6}
    large = {name for name, part in model.named_modules() if isinstance(part, nn.LayerNorm) and part.eps == 1e-5}
    assert sum(name.endswith(".kv.0") for name in large) == 7  # the wavelet blocks of the first two stages
    assert len(large) == 7 + 4
    assert all(name.endswith(("norm1", "norm2", "norm")) or name.count(".") == 1 for name in small)


@pytest.mark.parametrize(
    "name", ["vit_s16", "deit_s16", "deit3_s16", "evit_s16", "evit_fuse_s16", "dynamicvit_s16", "avit_s16"]
)
def test_a_class_token_starts_at_1e_6_and_the_cards_on_deit_say_what_deit_s_has(name: str) -> None:
    torch.manual_seed(0)
    token = favor.create_model(name, img_size=64).class_token
    assert token.std().item() == pytest.approx(1e-6, rel=0.2)
    if name != "vit_s16":
        notes = " ".join(favor.card(name).notes)
        assert "1e-6" in notes
        assert ("DeiT III's" if name == "deit3_s16" else "DeiT's") + " starts with 0.02" in notes


@pytest.mark.parametrize("name", ["tome_r8_s16", "gtp_s16"])
def test_the_class_token_of_tome_and_gtp_is_the_benchmark_s_and_the_cards_say_what_the_authors_have(name: str) -> None:
    torch.manual_seed(0)
    model = favor.create_model(name, img_size=64)
    assert model.class_token.std().item() == pytest.approx(1e-6, rel=0.2)
    assert model.positions.weight.shape[1] == 16
    scales = [part.gamma for part in model.modules() if isinstance(part, LayerScale)]
    assert len(scales) == 2 * 12
    assert all(torch.equal(gamma, torch.full_like(gamma, 1e-4)) for gamma in scales)
    notes = " ".join(favor.card(name).notes)
    assert "no position and starts with a standard deviation of 1e-6" in notes
    assert re.search(r"has a position and start(s|ed) with 0\.02", notes)


@pytest.mark.parametrize("name", OWN.values(), ids=OWN.keys())
def test_a_card_tells_of_the_layer_scale_that_its_model_has(name: str) -> None:
    torch.manual_seed(0)
    scales = {part.gamma.mean().item() for part in create_miniature(name).modules() if isinstance(part, LayerScale)}
    card = favor.card(name)
    said = f"{card.changes} {' '.join(card.notes)}"
    for scale in scales:
        assert "LayerScale" in said
        assert f"{scale:.0e}".replace("e-0", "e-") in said
        if scale == pytest.approx(1e-4) and card.family not in (
            "efficientmod",
            "vit",
        ):  # the authors' own, the baseline
            assert re.search(r"benchmark's (setting|row)|(in|as) the benchmark|benchmark took", said)


def test_stvit_s_stem_and_centres_cost_what_its_card_says() -> None:
    model = favor.create_model("stvit_swin_ti")
    stem = model.stages[0]
    assert sum(parameter.numel() for parameter in stem.parameters()) == 4_896
    assert 56 * 56 * stem.proj.weight.numel() == pytest.approx(14.5e6, rel=0.01)
    dim = 96
    authors = 3 * 9 * dim // 2 + 2 * dim // 2 + 9 * dim * dim // 2 + 2 * dim
    assert authors == 43_056
    assert 112**2 * (3 * 9 * dim // 2) + 56**2 * (9 * dim * dim // 2) == pytest.approx(146e6, rel=0.01)
    assert next(p for name, p in model.named_parameters() if name.endswith("centres")).shape == (1, 36, 384)
    notes = " ".join(favor.card("stvit_swin_ti").notes)
    for figure in ("4,896", "14.5 M", "43,056", "146 M", "36 x 384", "--use_global"):
        assert figure in notes
