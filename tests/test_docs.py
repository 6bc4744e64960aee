"""What the documents show works as it stands there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import favor
from equality import images, largest_difference, with_order_one_weights
from favor.study.resolve import resolve
from favor.study.study_files import open_study
from favor.zoo import registry
from favor.zoo.registry import create_miniature

GUIDE = Path(__file__).parents[1] / "docs" / "adding-a-model.md"
MODELS = ["crossmean_ti16", "crossmean_s16", "crossmean_b16", "crossmean_xs4"]


def shown(language: str) -> str:
    """The first block of a language that the guide shows."""
    block = re.search(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert block
    return block.group(1)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the guide's files are, which are loaded; its models are gone afterwards."""
    (tmp_path / "crossmean.py").write_text(shown("python"))
    (tmp_path / "mine.yaml").write_text(shown("yaml"))
    try:
        assert favor.load_plugin(tmp_path / "crossmean.py") == MODELS
        yield tmp_path
    finally:
        registry._forget(favor.list_models("crossmean_*"))


@pytest.mark.usefixtures("folder")
def test_the_example_of_the_guide_is_a_working_model() -> None:
    model = with_order_one_weights(create_miniature("crossmean_s16")).eval()
    x = images(1, 3, 64, 64)
    with torch.no_grad():
        assert model(x).shape == (1, 10)
        # rows and columns matter: the image turned by 90 degrees is another one
        assert largest_difference(model(x), model(x.rot90(1, (2, 3)))) > 1e-2


def test_the_guide_s_study_compares_the_example_with_others_of_its_size(folder: Path) -> None:
    study = resolve(*open_study(str(folder / "mine.yaml")))
    assert [model.name for model in study.models][:2] == ["crossmean_xs4", "vit_xs4"]
    assert {model.img_sizes for model in study.models} == {(32,)}
    ours, vit = (favor.create_model(name, num_classes=10) for name in ("crossmean_xs4", "vit_xs4"))
    assert ours.tokens == vit.tokens
    assert ours.blocks[0].mlp.fc1.weight.shape == vit.blocks[0].mlp.fc1.weight.shape
