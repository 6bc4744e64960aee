"""How alike are the mistakes of two models? The correlation of their hits on the same test images.

FAVOR_DATA=DIR python benchmarks/same_images.py [--minutes 3]        trains five small models on CIFAR-10

Two accuracies over the same n images differ by sqrt(2 v (1 - r) / n), where v is the variance of a hit and r this
correlation: `SAME_IMAGES` in `favor.analyze.intervals`. Only models of similar accuracy tell it.
"""

import argparse
import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

import favor
from favor.data.broken import BrokenImages
from favor.data.loader import EvaluationLoader
from favor.data.opening import open_data
from favor.machine.device import Cpu
from favor.training.predict import open_classifier

MODELS = ("vit_xs4", "ccl_xs4", "hybrid_vit_xs4", "mixer_xs4", "fnet_xs4")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--minutes", type=float, default=3.0, help="of training, for each model")
    minutes = arguments.parse_args().minutes
    with tempfile.TemporaryDirectory() as folder:
        hits = {name: hits_of(name, minutes, Path(folder)) for name in MODELS}
    print("| models | top-1 | correlation of hits |\n|---|---:|---:|")
    for a, b in combinations(MODELS, 2):
        shares = f"{hits[a].mean():.1%}, {hits[b].mean():.1%}"
        print(f"| {a}, {b} | {shares} | {np.corrcoef(hits[a], hits[b])[0, 1]:.2f} |")


def hits_of(name: str, minutes: float, folder: Path) -> np.ndarray:
    """Train a model for a few minutes; for every test image, whether it is right."""
    study = folder / name
    favor.train(name, recipe="laptop-cifar10", study=study, minutes=minutes)
    (run,) = (study / "runs").iterdir()
    trained = open_classifier(run, Cpu())
    images = open_data("cifar10").evaluation
    loader = EvaluationLoader(images, 500, trained.framing, trained.normalization, broken=BrokenImages(), workers=0)
    with torch.inference_mode():
        return np.concatenate([(trained.run(b.images).argmax(1) == b.labels).numpy() for b in loader]).astype(float)


if __name__ == "__main__":
    main()
