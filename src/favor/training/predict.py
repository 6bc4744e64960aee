"""Evaluation and prediction from a model file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from favor.data.broken import BrokenImages
from favor.data.framing import centre_cut
from favor.data.image_files import FolderPlaces, ImageFiles
from favor.data.loader import EvaluationLoader
from favor.data.opening import open_data
from favor.data.sources import DataSet
from favor.errors import RequestError, WorkError
from favor.machine.device import Device
from favor.machine.precision import Precision
from favor.training.checkpoint import load_model_file
from favor.training.distributed import Processes
from favor.training.evaluation import Scores, evaluate
from favor.training.initial_weights import checkpoint_file
from favor.training.preprocessing import framing_of, normalization_of
from favor.training.state import Trained, some
from favor.zoo.fuse import fuse
from favor.zoo.registry import create_model
from favor.zoo.weights import load_weights


@dataclass(frozen=True)
class Guess:
    """A class and the probability that the model gives it."""

    name: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The most likely classes of an image, best first; or why there are none."""

    image: str
    guesses: tuple[Guess, ...]
    reason: str | None = None


def load_trained(path: Path, place: torch.device) -> tuple[Trained, nn.Module]:
    """The model of a checkpoint or of a run's folder, ready for inference."""
    file = checkpoint_file(path)
    trained, weights = load_model_file(file)
    sides = (trained.img_size, trained.img_size)
    model = create_model(trained.model, num_classes=len(trained.classes), img_size=sides, in_chans=trained.in_chans)
    load_weights(model, weights, sides)
    return trained, fuse(model).to(place)


def evaluate_checkpoint(
    path: Path, data: str | None, device: Device, processes: Processes, batch_size: int, workers: int
) -> tuple[Trained, DataSet, Scores]:
    """Evaluate a checkpoint on a data set, by default the one that it was trained on."""
    trained, model = load_trained(path, device.place)
    known = open_data(data) if data else _own_data(path, trained)
    if known.classes != trained.classes:
        raise RequestError(
            f"{path} tells {some(trained.classes)} apart, {known.name} has {some(known.classes)}; "
            "evaluate on data with the same classes, or `favor finetune` it on these"
        )
    recipe = trained.recipe
    loader = EvaluationLoader(
        known.evaluation,
        batch_size,
        framing_of(recipe),
        normalization_of(recipe),
        broken=BrokenImages(),
        share=processes.share,
        workers=workers,
        device=device.place,
    )
    scores = evaluate(model, loader, Precision.named(recipe.precision, device.kind), processes)
    if not math.isfinite(scores.loss):
        raise WorkError(f"{path}: the loss is {scores.loss}: the model's weights or outputs are not finite")
    return trained, known, scores


def _own_data(path: Path, trained: Trained) -> DataSet:
    """The data set that a checkpoint was trained on, found by its name; a different one is refused."""
    if trained.dataset.startswith("folder:"):
        raise RequestError(f"{path} was trained on {trained.dataset}; say where it is now: --data folder:PATH")
    known = open_data(trained.dataset.partition("[")[0])
    if known.name != trained.dataset:
        raise RequestError(f"{path} was trained on {trained.dataset}, but {known.name} was found; choose with --data")
    return known


def predict(path: Path, images: Sequence[Path], device: Device, guesses: int = 5) -> tuple[Trained, list[Prediction]]:
    """The most likely classes of image files, cropped and normalized as in the evaluation."""
    trained, model = load_trained(path, device.place)
    recipe = trained.recipe
    normalize, precision = normalization_of(recipe), Precision.named(recipe.precision, device.kind)
    found = []
    for image in images:
        file = ImageFiles(FolderPlaces(Path(), [str(image)]), np.zeros(1, dtype=np.int64))
        fetched = file.fetch(np.zeros(1, dtype=np.int64), centre_cut(framing_of(recipe), 1))
        if fetched.broken:
            found.append(Prediction(str(image), (), fetched.broken[0].reason))
            continue
        with torch.inference_mode(), precision.context(device.place):
            logits = model(normalize(fetched.images.to(device.place).float().div_(255)))
        likeliest = logits.float().softmax(1).topk(min(guesses, len(trained.classes)))
        pairs = zip(likeliest.values[0].tolist(), likeliest.indices[0].tolist(), strict=True)
        told = tuple(Guess(trained.classes[label], probability) for probability, label in pairs)
        found.append(Prediction(str(image), told))
    return trained, found
