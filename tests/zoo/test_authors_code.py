"""What a card says of the authors' code: the model has the value that is called its own, and the card gives both."""

import pytest
import torch
from torch import nn

import favor
from drop_path import rates
from equality import images, largest_difference, with_order_one_weights
from favor.zoo.encoder import Size
from favor.zoo.layers import LayerScale
from favor.zoo.mixing.kernel.performer import PerformerMixer
from favor.zoo.pools import ClassTokenPool
from favor.zoo.registry import create_miniature
from favor.zoo.slots import Flow, Tokens

SAID = {
    "performer_s16": ("128 features", "256 by default", "every pass", "adds 1e-6", "the benchmark's 1e-4", "0.001"),
    "linear_s16": ("1e-6 is added to the sum of a row's weights", "are not scaled"),
    "informer_s16": ("30 of 197", "divides the sum by N instead of by 30", "every query has its own"),
    "afno_s16": ("8 blocks, shrinkage by 0.01", "1 block and no shrinkage", "`--fno-bias`", "`--double-skip`"),
    "tokenlearner_8_50_s16": ("1536 at S", "64 units", "8 new tokens", "16 tokens after 9 of 12 blocks"),
    "cait_s24": ("LayerScale starts at 1e-5", "class-attention blocks have none"),
    "xcit_s12_p16": ("LayerScale starts at 1 ", "class-attention blocks have none", "4.80 G", "4.86 G"),
    "gfnet_s16": ("No LayerScale", "standard deviation of 0.02", "bicubic"),
    "fnet_s16": ("not scaled", "75,648", "epsilon 1e-6", "epsilon 1e-12", "tanh"),
    "tome_r8_s16": (
        "LayerScale starts at 1e-4",
        "authors' code has none",
        "by default and advises against it in training",
    ),
    "gtp_s16": ("LayerScale starts at 1e-4", "an option that their DeiT models do not use", "removes 4"),
    "scatterbrain_s16": ("64 directions", "w and -w", "features once and the hash in every pass"),
    "efficientmod_s": ("LayerScale 1e-4", "epsilon of the norms is 1e-5"),
    "wavevit_s": ("0.35 and 0.25",),
    "nystrom64_s16": ("33 taps", "512 tokens", "65 (4,096 tokens)", "35 (Long Range Arena)", "authors' ImageNet code"),
    "swiftformer_xs": ("3,254,360", "3,255,232"),
    "swiftformer_s": ("5,867,128", "5,868,136"),
    "vit_xs4": ("No LayerScale", "at its sizes LayerScale 1e-4"),
}


@pytest.mark.parametrize("name", SAID)
def test_a_card_gives_the_model_s_value_and_the_authors(name: str) -> None:
    notes = " ".join(favor.card(name).notes)
    for text in SAID[name]:
        assert text in notes


def test_performer_has_128_features_and_redraws_them_at_every_hundredth_of_training() -> None:
    assert create_miniature("performer_s16").blocks[0].mixer.projection.shape[0] == 128
    mixer = PerformerMixer(8, 1, Tokens(2, 2, class_token=True)).train()
    drawn = set()
    for step in range(1001):
        mixer.set_progress(step / 1000)
        drawn.add(mixer.projection.sum().item())
    assert len(drawn) == 100


def test_afno_has_the_defaults_of_the_authors_layer_and_a_residual_for_mixer_and_mlp_each() -> None:
    torch.manual_seed(0)
    block = favor.create_model("afno_s16", img_size=64).blocks[0]
    mixer = block.mixer
    assert (mixer.blocks, mixer.shrink) == (8, 0.01)
    for weight in (mixer.w1, mixer.b1, mixer.w2, mixer.b2):
        assert weight.std().item() == pytest.approx(0.02, rel=0.1)
    with_order_one_weights(block).double()
    x = images(2, 16, 384, dtype=torch.float64)
    with torch.no_grad():
        mixed = x + block.ls1(mixer(block.norm1(x)))
        expected = mixed + block.ls2(block.mlp(block.norm2(mixed)))
        assert largest_difference(block(x, Flow()), expected) < 1e-12
        assert largest_difference(expected - mixed + x, expected) > 1e-2


def test_tokenlearner_s_maps_come_from_a_layer_as_wide_as_the_mlps_and_a_class_token_stays() -> None:
    with torch.device("meta"):
        model = favor.create_model("tokenlearner_8_50_s16")
    (reducer,) = (block.reducer for block in model.blocks if block.reducer is not None)
    assert [layer.out_features for layer in reducer.draw if isinstance(layer, nn.Linear)] == [1536, 8]
    assert model.class_token is not None


@pytest.mark.parametrize(
    ("name", "start", "scales"), [("cait_s24", 1e-5, 2 * 26), ("xcit_s12_p16", 1.0, 3 * 12 + 2 * 2)]
)
def test_layer_scale_of_cait_and_xcit_starts_as_the_authors_does_and_class_attention_has_no_drop_path(
    name: str, start: float, scales: int
) -> None:
    model = favor.create_model(name, drop_path=0.3)
    gammas = [weight for part, weight in model.named_parameters() if ".gamma" in part]
    assert len(gammas) == scales
    assert all(torch.equal(gamma, torch.full_like(gamma, start)) for gamma in gammas)
    class_blocks = model.blocks_token_only if name == "cait_s24" else model.cls_attn_blocks
    assert set(rates(model.blocks)) == {0.3}
    assert not any(rates(class_blocks))


def test_gfnet_s_filters_start_with_0_02_and_its_blocks_have_no_layer_scale() -> None:
    torch.manual_seed(0)
    model = favor.create_model("gfnet_ti16", img_size=64, drop_path=0.1)
    assert model.blocks[0].mixer.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.positions.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert not any(isinstance(part, LayerScale) for part in model.modules())
    assert [block.drop_path.rate for block in model.blocks] == pytest.approx([0.1 * i / 11 for i in range(12)])


def test_fnet_s_head_reads_the_class_token_and_nothing_is_between_norm_and_head() -> None:
    model = with_order_one_weights(favor.create_model("fnet_s16", size=Size(48, 2, 3), img_size=64)).double().eval()
    assert isinstance(model.pool, ClassTokenPool)
    x = images(2, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        tokens, flow = model.embed(x), Flow()
        for block in model.blocks:
            tokens = block(tokens, flow)
        assert largest_difference(model(x), model.head(model.norm(tokens[:, 0]))) < 1e-12
        assert largest_difference(model(x), model.head(model.norm(tokens[:, 1]))) > 1e-3
