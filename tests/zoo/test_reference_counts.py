"""Parameters and multiply-adds are those of an existing implementation, or the card tells its figure and why."""

import csv
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import pytest
import torch

import favor
from favor.analyze.trained_as import trained_as
from favor.records import counted_records
from favor.trace.operator_trace import trace
from favor.zoo.encoder import SIZES

Figure = TypeVar("Figure", int, float)


def reference() -> list[dict[str, str]]:
    data = os.environ.get("FAVOR_DATA")
    file = Path(data).parent / "reference" / "models.csv" if data else None
    if file is None or not file.is_file():
        return []
    with file.open() as lines:
        return list(csv.DictReader(lines))


ROWS = reference()
if not ROWS:
    pytest.skip("FAVOR_DATA does not point at a folder with ../reference/models.csv", allow_module_level=True)
PARAMETERS = [(row["name"], int(row["params_1000_classes_224px"])) for row in ROWS]
GMACS = [(row["name"], float(row["gmacs_224px"])) for row in ROWS if row["gmacs_224px"]]


@dataclass(frozen=True)
class Counts:
    params: int
    macs_matmul: int


@cache
def counted(name: str) -> Counts:
    """The counts that come with the package, which tests/records/test_counts.py holds against the counter."""
    (record,) = (record for record in counted_records() if record.name == favor.card(name).name)
    return Counts(*(int(record.metrics[metric].value) for metric in ("params", "macs_matmul")))


def normalized(name: str) -> int:
    """How many elements a model's norms put out for one image."""
    with torch.device("meta"):
        model = favor.create_model(name)
        ops = trace(model, torch.empty(1, 3, 224, 224)).ops
    return sum(math.prod(op.outputs[0].shape) for op in ops if op.kind == "norm")


def told(name: str, figures: list[str]) -> bool:
    """Whether the card tells one of these figures."""
    return any(figure in " ".join(favor.card(name).notes) for figure in figures)


# ---- what a card tells at one size, S, holds for the others by its cause: the reference's figure less ours

TOKENS, DEPTH = 197, 12


def without_layer_scale(dim: int) -> int:
    return -DEPTH * 2 * dim


def projected_to_256(dim: int) -> int:
    """k = 256 instead of 64, and no bias on queries, keys and values."""
    return DEPTH * (2 * (256 - 64) * TOKENS - 3 * dim)


def blocks_shared(count: int, dim: int) -> int:
    return -count * (12 * dim**2 + 15 * dim)


MORE_PARAMETERS: dict[str, Callable[[int], int]] = {
    "informer": without_layer_scale,
    "linformer": projected_to_256,
    "tokenlearner_8_50": partial(blocks_shared, 6),
    "tokenlearner_8_75": partial(blocks_shared, 3),
}


def attention_over_256(dim: int) -> int:
    return DEPTH * 4 * (256 - 64) * TOKENS * dim


def without_products_of_features(dim: int) -> int:
    return -DEPTH * 4 * 128 * TOKENS * dim


def padded_to_256(dim: int) -> int:
    """Projections of 256 tokens, 4 chunks of 64 instead of 50, and 2 directions a round instead of 4."""
    projections = 3 * (256 - TOKENS) * dim**2
    attention = 8 * 4 * 2 * (64 * 128 - 50 * 100) * dim
    return DEPTH * (projections + attention + 8 * (256 * 2 - TOKENS * 4) * dim)


def nine_blocks_twice(dim: int) -> int:
    """Six blocks more on the 8 new tokens and the class token."""
    return 6 * (12 * 9 * dim**2 + 2 * 9**2 * dim)


def no_token_removed(name: str) -> int:
    size = name.rpartition("_")[2]
    return counted(f"vit_{size}").macs_matmul - counted(name).macs_matmul


MORE_MACS: dict[str, Callable[[int], int]] = {
    "linformer": attention_over_256,
    "performer": without_products_of_features,
    "reformer": padded_to_256,
    "tokenlearner_8_75": nine_blocks_twice,
}
CLOSE, CLOSE_BY_CAUSE = 0.005, 0.01


def at_s(name: str, table: list[tuple[str, Figure]]) -> Figure:
    """The reference's figure for the size S of a model, which is the one that cards tell."""
    return dict(table)[f"{name.rpartition('_')[0]}_s16"]


def width(name: str) -> int:
    return SIZES[name.rpartition("_")[2].removesuffix("16")].dim


@pytest.mark.parametrize(("name", "parameters"), PARAMETERS, ids=[name for name, _ in PARAMETERS])
def test_parameters_are_the_reference_s_or_the_card_tells_its_figure(name: str, parameters: int) -> None:
    ours = counted(name).params
    cause = MORE_PARAMETERS.get(name.rpartition("_")[0])
    if cause is not None:
        assert ours + cause(width(name)) == parameters
        assert told(name, [f"{at_s(name, PARAMETERS):,}"])
    elif ours != parameters:
        assert told(name, [f"{parameters:,}"]), f"{ours:,} here, {parameters:,} there"


@pytest.mark.parametrize(("name", "gmacs"), GMACS, ids=[name for name, _ in GMACS])
def test_multiply_adds_are_the_reference_s_or_the_card_tells_its_figure(name: str, gmacs: float) -> None:
    ours, model = counted(name).macs_matmul, name.rpartition("_")[0]
    more = MORE_MACS[model](width(name)) if model in MORE_MACS else 0
    if model in ("evit", "evit_fuse"):
        more = no_token_removed(name)
    close = CLOSE_BY_CAUSE if more else CLOSE
    low, high = (1 - close) * (ours + more), (1 + close) * (ours + more)
    # the reference's figure includes norms, once or twice an element, which are no matrix products
    fits = low < gmacs * 1e9 and (gmacs * 1e9 < high or gmacs * 1e9 < high + (1 + close) * 2 * normalized(name))
    if more:
        assert fits, f"{(ours + more) / 1e9:.4f} G by the cause that the card tells, {gmacs} G there"
    figure = at_s(name, GMACS) if more else gmacs
    if more or not fits:
        assert told(name, [f"{figure:.2f}", f"{figure:.3f}"]), f"{ours / 1e9:.4f} G here, {gmacs} G there"


def test_a_cause_of_another_width_does_not_explain_the_reference_s_figure() -> None:
    reference = dict(PARAMETERS)
    for model, cause in MORE_PARAMETERS.items():
        assert counted(f"{model}_ti16").params + cause(width(f"{model}_b16")) != reference[f"{model}_ti16"]


def test_every_name_of_the_reference_leads_to_our_model() -> None:
    unknown = [row["reference_name"] for row in ROWS if row["reference_name"] not in known_names(row["name"])]
    assert not unknown


def known_names(name: str) -> set[str]:
    card = favor.card(name)
    return {card.name, *card.aliases}


@pytest.mark.parametrize(
    ("name", "params"), [(trained_as()[name], p) for name, p in PARAMETERS if name in trained_as()]
)
def test_a_configuration_of_the_benchmark_has_the_parameters_of_the_reference(name: str, params: int) -> None:
    with torch.device("meta"):
        model = favor.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == params
