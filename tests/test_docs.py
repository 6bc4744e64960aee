"""What the documents show works as it stands there."""

import re
from pathlib import Path

import torch

import favor
from equality import images, largest_difference, with_order_one_weights
from favor.zoo import registry
from favor.zoo.registry import create_miniature

GUIDE = Path(__file__).parents[1] / "docs" / "adding-a-model.md"


def test_the_example_of_the_guide_is_a_working_model(tmp_path: Path) -> None:
    example = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert example
    file = tmp_path / "crossmean.py"
    file.write_text(example.group(1))
    try:
        assert favor.load_plugin(file) == ["crossmean_ti16", "crossmean_s16", "crossmean_b16"]
        model = with_order_one_weights(create_miniature("crossmean_s16")).eval()
        x = images(1, 3, 64, 64)
        with torch.no_grad():
            assert model(x).shape == (1, 10)
            # rows and columns matter: the image turned by 90 degrees is another one
            assert largest_difference(model(x), model(x.rot90(1, (2, 3)))) > 1e-2
    finally:
        registry._forget(favor.list_models("crossmean_*"))
