"""Parameters and multiply-adds are those of an existing implementation, or the card tells its figure and why."""

import csv
import math
import os
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest
import torch

import favor
from favor.measure.count import Counts, count
from favor.measure.trace import trace

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


@cache
def counted(name: str) -> Counts:
    return count(name)


def normalised(name: str) -> int:
    """How many elements a model's norms put out for one image."""
    with torch.device("meta"):
        model = favor.create_model(name)
        ops = trace(model, torch.empty(1, 3, 224, 224)).ops
    return sum(math.prod(op.outputs[0].shape) for op in ops if op.kind == "norm")


def told(name: str, figures: list[str]) -> bool:
    """Whether the card tells one of the reference's figures for the family; one size stands for all."""
    return any(figure in " ".join(favor.card(name).notes) for figure in figures)


def siblings(name: str, table: list[tuple[str, Figure]]) -> list[Figure]:
    """The reference's figures for all models of a family."""
    family = favor.card(name).family
    return [figure for sibling, figure in table if favor.card(sibling).family == family]


@pytest.mark.parametrize(("name", "parameters"), PARAMETERS, ids=[name for name, _ in PARAMETERS])
def test_parameters_are_the_reference_s_or_the_card_tells_its_figure(name: str, parameters: int) -> None:
    ours = counted(name).params
    if ours != parameters:
        figures = [f"{figure:,}" for figure in siblings(name, PARAMETERS)]
        assert told(name, figures), f"{ours:,} here, {parameters:,} there"


@pytest.mark.parametrize(("name", "gmacs"), GMACS, ids=[name for name, _ in GMACS])
def test_multiply_adds_are_the_reference_s_or_the_card_tells_its_figure(name: str, gmacs: float) -> None:
    # the reference's figure includes norms, once or twice an element, which are no matrix products
    ours = counted(name).macs_matmul / 1e9
    if not ours * 0.995 < gmacs < (ours + 2 * normalised(name) / 1e9) * 1.005:
        figures = [f"{figure:.{digits}f}" for figure in siblings(name, GMACS) for digits in (2, 3)]
        assert told(name, figures), f"{ours:.4f} G here, {gmacs} G there"


def test_every_name_of_the_reference_leads_to_our_model() -> None:
    unknown = [row["reference_name"] for row in ROWS if row["reference_name"] not in known_names(row["name"])]
    assert not unknown


def known_names(name: str) -> set[str]:
    card = favor.card(name)
    return {card.name, *card.aliases}
