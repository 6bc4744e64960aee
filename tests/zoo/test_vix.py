"""The X-formers have the parameters of the paper's networks, true and by its convention, and all of them work."""

import csv
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import nn

import favor
from equality import images, largest_difference
from favor.errors import RequestError
from favor.records import published
from favor.trace.counts import count
from favor.trace.paper_counts import params_paper
from favor.zoo.encoder import Size
from favor.zoo.mixing.low_rank.linformer import LinformerMixer
from favor.zoo.registry import create_miniature
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How
from favor.zoo.vix.plain import TokenLinear
from favor.zoo.vix.setting import conv_strides, patch_size
from favor.zoo.weights import weights_to_save

MODELS = favor.list_models("vix_*")
MISPRINTED = {("3", "vix_levip"): (662_410, 622_410)}
"""(table, model) -> what is printed and what Table 4 implies."""
SETTINGS = {"cifar10": {"num_classes": 10, "img_size": 32}, "tiny-imagenet": {"num_classes": 200, "img_size": 64}}


@dataclass(frozen=True)
class Row:
    """A row of the paper's tables."""

    table: str
    name: str
    dataset: str
    printed: int

    @property
    def intended(self) -> int:
        return MISPRINTED.get((self.table, self.name), (self.printed, self.printed))[1]


def printed_rows() -> list[Row]:
    """Tables 1 to 5; Table 6 prints no parameters."""
    return [
        Row(
            str(record.provenance["table"]),
            record.name,
            str(record.conditions["dataset"]),
            int(record.metrics["params_paper"].value),
        )
        for record in published.records()
        if record.provenance["paper"] == "hybrid_x_formers_for_vision" and "params_paper" in record.metrics
    ]


ROWS = printed_rows()


def built(name: str, dataset: str = "cifar10", **settings: object) -> nn.Module:
    with torch.device("meta"):
        return favor.create_model(name, **{**SETTINGS[dataset], **settings})  # type: ignore[arg-type]


def true_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def reference() -> list[dict[str, str]]:
    if "FAVOR_DATA" not in os.environ:
        pytest.skip("FAVOR_DATA does not say where the reference figures are")
    file = Path(os.environ["FAVOR_DATA"]).parent / "reference" / "vix_params.csv"
    if not file.is_file():
        pytest.skip("there is no vix_params.csv beside the data")
    with file.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def our_name(row: dict[str, str]) -> str:
    """`Hybrid MLP Mixer (stride 1 edit)` -> vix_hybrid_mixer."""
    title = re.sub(r"\(.*\)", "", row["model"]).replace("MLP Mixer", "Mixer").strip()
    return "vix_" + title.lower().replace(" ", "_")


def test_there_are_all_38_models_in_54_rows_with_parameters() -> None:
    assert len(MODELS) == 38
    assert len(ROWS) == 54
    assert {row.name for row in ROWS} == {name for name in MODELS if not name.endswith("_rope")}


@pytest.mark.parametrize("row", ROWS, ids=[f"table{row.table}-{row.name}" for row in ROWS])
def test_parameters_by_the_paper_s_convention_are_the_printed_ones_to_the_digit(row: Row) -> None:
    assert params_paper(built(row.name, row.dataset)) == row.intended


def test_the_one_misprint_is_levip_s_in_table_3() -> None:
    wrong = [row for row in ROWS if params_paper(built(row.name, row.dataset)) != row.printed]
    assert [(row.table, row.name, row.printed) for row in wrong] == [("3", "vix_levip", 662_410)]
    in_table_4 = next(row.printed for row in ROWS if (row.table, row.name) == ("4", "vix_levip"))
    assert in_table_4 - (200 - 10) * (128 + 1) == 622_410
    assert "662,410" in " ".join(favor.card("vix_levip").notes)


def test_true_parameters_are_the_reference_s_but_for_positions_that_nothing_uses() -> None:
    for row in reference():
        dataset = "cifar10" if row["dataset"] == "CIFAR-10" else "tiny-imagenet"
        model = built(our_name(row), dataset)
        unused = 131_200 if "unused pos_embedding" in row["note"] else 0
        assert true_count(model) == int(row["true_params"]) - unused, row["model"]
        assert params_paper(model) == int(row["paper_convention_params"]), row["model"]
        assert not unused or "131,200" in " ".join(favor.card(our_name(row)).notes)


def test_the_page_has_both_counts_of_every_row() -> None:
    page = (Path(__file__).parents[2] / "docs" / "vix.md").read_text(encoding="utf-8")
    for row in ROWS:
        model = built(row.name, row.dataset)
        section = page.split(f"## Table {row.table}:")[1].split("\n## ")[0]
        line = next(line for line in section.splitlines() if f"`{row.name}`" in line)
        assert f"| {row.printed:,}" in line
        assert f"| {row.intended:,} | {true_count(model):,} |" in line


def test_the_linformer_looks_smallest_and_is_the_largest_of_its_group() -> None:
    group = ["vix_vit", "vix_vip", "vix_vil", "vix_vin"]
    networks = {name: built(name) for name in group}
    assert min(group, key=lambda name: params_paper(networks[name])) == "vix_vil"
    assert max(group, key=lambda name: true_count(networks[name])) == "vix_vil"
    assert true_count(networks["vix_vil"]) == 809_482


def test_a_shared_weight_and_a_derived_layer_count_once_and_a_bare_parameter_does_not() -> None:
    class Scaled(nn.Linear):
        def __init__(self) -> None:
            super().__init__(3, 3)
            self.scale = nn.Parameter(torch.ones(3))

    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(5))

    layer = Scaled()
    assert params_paper(nn.Sequential(layer, layer, Bare())) == 12


@pytest.mark.parametrize("name", MODELS)
def test_the_sequence_has_1024_patches_at_32_and_at_64_px(name: str) -> None:
    for dataset in SETTINGS:
        model = built(name, dataset)
        grids = [module.tokens.patches for module in model.modules() if hasattr(module, "tokens")]
        pooled = {256} if "_pi" in name else set()
        assert {1024} <= set(grids) <= {1024} | pooled


def test_a_compact_stem_at_64_px_strides_in_its_first_convolution() -> None:
    """32 x 32 places for each of three 3 x 3 convolutions, 3 -> 64 -> 64 -> 128 wide."""
    small, large = (count("vix_cct", img_size=size, num_classes=10).macs_matmul for size in (32, 64))
    assert small == large
    model = built("vix_cct", "tiny-imagenet")
    outputs: list[int] = []
    for layer in model.patch_embed.layers:
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda module, inputs, output: outputs.append(output[0].numel()))
    with torch.device("meta"):
        model(torch.zeros(1, 3, 64, 64))
    assert outputs == [64 * 1024, 64 * 1024, 128 * 1024]


def test_the_hybrid_linformer_has_one_head_of_keys_as_counted_where_the_authors_code_has_four() -> None:
    assert params_paper(built("vix_hybrid_vil")) == 508_490
    assert params_paper(built("vix_hybrid_vil", kv_heads=4)) == 557_642
    notes = " ".join(favor.card("vix_hybrid_vil").notes)
    assert "508,490" in notes
    assert "557,642" in notes


def test_x_formers_start_as_vit_does_and_their_cards_say_how_the_authors_start() -> None:
    torch.manual_seed(0)
    model = favor.create_model("vix_vit", num_classes=10)
    assert model.positions.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.class_token.abs().max() < 1e-5
    assert model.blocks[0].mlp.fc1.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert {part.eps for part in model.modules() if isinstance(part, nn.LayerNorm)} == {1e-6}
    for name in MODELS:
        assert "deviation of 0.02" in " ".join(favor.card(name).notes)


def test_larger_images_have_about_32_tokens_a_side_and_no_pixel_is_skipped() -> None:
    assert [patch_size((side, side)) for side in (32, 64, 224, 384)] == [1, 2, 7, 12]
    assert [conv_strides((side, side)) for side in (32, 64, 128)] == [(1, 1, 1), (2, 1, 1), (2, 2, 1)]
    assert max(stride for side in range(32, 1025, 32) for stride in conv_strides((side, side))) == 2


@pytest.mark.parametrize(
    "name",
    ["vix_vit", "vix_hybrid_vin_rope", "vix_fnet", "vix_mixer", "vix_levil", "vix_ccp", "vix_cvt", "vix_hybrid_pip"],
)
def test_224_and_384_px_both_work(name: str) -> None:
    for side in (224, 384):
        with torch.device("meta"):
            model = favor.create_model(name, img_size=side, num_classes=7).eval()
            assert model(torch.zeros(1, 3, side, side)).shape == (1, 7)


@pytest.mark.parametrize("name", ["vix_vit", "vix_levin", "vix_ccp", "vix_cvp", "vix_cvt", "vix_pit", "vix_hybrid_pin"])
def test_an_image_of_another_shape_is_refused_even_where_it_has_as_many_tokens(name: str) -> None:
    with torch.device("meta"):
        model = create_miniature(name).eval()
        for height, width in ((16, 64), (64, 64)):
            with pytest.raises(RequestError, match=f"built for images of 32 x 32 px, not {height} x {width}"):
                model(torch.zeros(1, 3, height, width))


@pytest.mark.parametrize("name", MODELS)
def test_a_miniature_learns_with_every_parameter_and_judges_each_image_alone(name: str) -> None:
    torch.manual_seed(0)
    model = create_miniature(name).train()
    x = images(4, 3, 32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    moved: set[str] = set()
    for _ in range(2):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 2, 3]))
        loss.backward()
        moved |= {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
        assert loss.isfinite()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
        optimizer.step()
    assert not {name for name, _ in model.named_parameters()} - moved
    model.eval()
    with torch.no_grad():
        together = model(x)
        assert torch.equal(together, model(x))
        assert largest_difference(together[:1], model(x[:1])) < 1e-4 * float(together.abs().max())
        assert largest_difference(together[:1], together[1:2]) > 1e-3 * float(together.abs().max())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert model(x).isfinite().all()
    other = create_miniature(name).eval()
    favor.load_weights(other, load_safetensors(save_safetensors(weights_to_save(model))))
    with torch.no_grad():
        assert torch.equal(other(x), together)


@pytest.mark.parametrize("name", ["vix_vip", "vix_vil_rope", "vix_ccn", "vix_cvt"])
def test_compiles_without_a_break_in_the_graph(name: str) -> None:
    model = create_miniature(name, size=Size(16, 3, 4, 2.0)).eval()
    x = images(2, 3, 32, 32)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        assert torch.allclose(compiled(x), model(x), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "resampled"),
    [("vix_hybrid_vil", 5), ("vix_hybrid_mixer", 16), ("vix_cvl", 3), ("vix_hybrid_pit", 1), ("vix_ccl", 5)],
)
def test_weights_with_a_token_axis_come_along_to_another_number_of_tokens(name: str, resampled: int) -> None:
    coarse, fine = create_miniature(name, grid=8).eval(), create_miniature(name, grid=16).eval()
    assert len(favor.load_weights(fine, coarse.state_dict()).resampled) == resampled
    with torch.no_grad():
        assert fine(images(1, 3, 32, 32)).isfinite().all()


def test_a_constant_token_map_stays_the_same_map_when_it_is_resampled() -> None:
    small, large = TokenLinear(Tokens(4, 4, False)), TokenLinear(Tokens(8, 8, False))
    mean = small.resample("weight", torch.full((16, 16), 1 / 16))
    assert torch.allclose(large.resample("weight", mean), torch.full((64, 64), 1 / 64))
    assert torch.allclose(large.resample("bias", torch.full((16,), 0.5)), torch.full((64,), 0.5))


def test_softmax_costs_grow_with_the_square_of_the_tokens_and_the_x_formers_do_not() -> None:
    attention = {name: count(name, num_classes=10).macs_matmul for name in ("vix_vit", "vix_vip", "vix_vil", "vix_vin")}
    dim, blocks, tokens, features = 128, 4, 1025, 110
    rest = attention["vix_vit"] - 2 * blocks * tokens**2 * dim
    # two heads of features (twice the projection, twice the product, the row sums), two of five windows of 205
    performer = 2 * tokens * features * (4 * 32 + 1) + 2 * 2 * tokens * 205 * 32
    assert attention["vix_vip"] == rest + blocks * performer
    assert all(macs < attention["vix_vit"] / 2 for name, macs in attention.items() if name != "vix_vit")


def test_cards_tell_the_place_of_the_mixer_and_the_published_rows_their_names() -> None:
    expected = {
        "vix_vit": How.BASELINE,
        "vix_fnet": How.FOURIER,
        "vix_mixer": How.SHUFFLING,
        "vix_hybrid_vip": How.KERNEL,
    }
    expected |= {"vix_ccl": How.LOW_RANK, "vix_pin": How.LOW_RANK, "vix_hybrid_vit": How.HYBRID}
    expected |= dict.fromkeys(("vix_levit", "vix_cct", "vix_cvt", "vix_pit", "vix_hybrid_pit"), How.HYBRID)
    assert {name: favor.card(name).how for name in expected} == expected
    told = published.card_fields()
    assert {name: favor.card(name).title for name in MODELS} == {name: told[name].title for name in MODELS}
    assert favor.card("Hybrid ViN").name == "vix_hybrid_vin"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vix_ccn", ("0.2", "Kaiming")),
        ("vix_levin", ("GELU", "Hardswish")),
        ("vix_cvn", ("add 1e-5 to the variance",)),
        ("vix_vil", ("share one head of keys",)),
        ("vix_vil_rope", ("Four heads of keys",)),
        ("vix_vin", ("3 % of their norm apart", "Without a class token (1024 tokens)")),
    ],
)
def test_a_card_says_where_the_authors_code_differs(name: str, said: tuple[str, ...]) -> None:
    notes = " ".join(favor.card(name).notes)
    for text in said:
        assert text in notes, text


@pytest.mark.parametrize("name", MODELS)
def test_a_card_says_nothing_that_its_own_model_contradicts(name: str) -> None:
    """An epsilon where there is no LayerNorm, one head of keys where there are four, the initialization of others."""
    notes = " ".join(favor.card(name).notes)
    with torch.device("meta"):
        model = create_miniature(name)
    assert ("LayerNorm" in notes) == any(isinstance(part, nn.LayerNorm) for part in model.modules())
    heads = {part.heads // part.shares for part in model.modules() if isinstance(part, LinformerMixer)}
    assert ("share one head of keys" in notes) == (heads == {1})
    assert ("Four heads of keys" in notes) == (heads == {4})
    assert ("class token a standard deviation of 1" in notes) != ("Kaiming" in notes)
