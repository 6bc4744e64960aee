"""A checkpoint that has learned a little, exported by the tests of runtimes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import favor
from favor.data.opening import open_data
from favor.training.checkpoint import save_model
from favor.training.recipe import load_recipe
from favor.training.state import Trained
from favor.zoo import registry

PLUGIN = Path(__file__).parents[1] / "training" / "tiny_models.py"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A tiny ViT after 60 steps on scikit-learn's digits, which knows about half of them."""
    names = favor.load_plugin(PLUGIN)
    torch.manual_seed(0)
    model, digits = favor.create_model("tiny_vit", num_classes=10, img_size=32), open_data("digits")
    images = digits.train.images.float().div(127.5).sub(1)
    images = F.interpolate(images, (32, 32), mode="bilinear")
    labels = torch.from_numpy(digits.train.labels)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    for step in range(60):
        batch = slice(16 * step, 16 * step + 16)
        F.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
        optimizer.zero_grad()
    file = tmp_path_factory.mktemp("checkpoint") / "best.safetensors"
    known = Trained(
        favor="0",
        run="a",
        step=60,
        epochs=1.0,
        model="tiny_vit",
        img_size=32,
        in_chans=3,
        classes=digits.classes,
        dataset="digits",
        pretraining="none",
        recipe=load_recipe("laptop-digits"),
        top1=None,
    )
    save_model(file, model, known)
    yield file
    registry.unregister(names)
