"""Evaluation and prediction from a model file, or from an exported file and its card."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from favor.data.augment import Normalization
from favor.data.broken import BrokenImages
from favor.data.framing import Framing, center_cut
from favor.data.image_files import FolderPlaces, ImageFiles
from favor.data.loader import EvaluationLoader
from favor.data.opening import open_data
from favor.data.sources import DataSet
from favor.errors import RequestError, WorkError
from favor.machine.device import Device
from favor.machine.precision import Precision
from favor.runtime.card import read_card
from favor.runtime.export import ENDINGS, OPENERS
from favor.runtime.session import Choice
from favor.runtime.start import open_file
from favor.training.checkpoint import load_model_file
from favor.training.distributed import Processes
from favor.training.evaluation import Scores, score
from favor.training.initial_weights import checkpoint_file
from favor.training.preprocessing import framing_for, framing_of, normalization_for, normalization_of
from favor.training.state import Trained, some
from favor.zoo.checkpoints import checkpoint, give_pretrained_weights, imagenet_class_names, imagenet_classes
from favor.zoo.fuse import fuse
from favor.zoo.registry import card, create_model
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


@dataclass(frozen=True)
class Classifier:
    """A trained model that is ready to run: what its outputs mean, how images get in, and how a batch is run.

    `training` says where its weights are from; `epochs` and `top1`, that of its last evaluation, are None if unknown.
    `class_names` are the classes in words, if they differ from their names.
    """

    model: str
    classes: tuple[str, ...]
    dataset: str
    epochs: float | None
    framing: Framing
    normalization: Normalization
    place: torch.device
    run: Callable[[Tensor], Tensor]
    training: str
    class_names: tuple[str, ...] = ()
    top1: float | None = None

    @property
    def img_size(self) -> int:
        return self.framing.img_size


def open_classifier(path: Path, device: Device, pretrained: bool | str = False) -> Classifier:
    """The model of a checkpoint, of a run's folder, or of a file that `favor export` wrote.

    With `pretrained`, `path` is the name of a model, and its published weights are used: the default ones or a tag's.
    """
    if pretrained is not False:
        return _published(str(path), None if pretrained is True else pretrained, device)
    if path.suffix in ENDINGS.values():
        return _exported(path, device)
    trained, model = load_trained(path, device.place)
    return Classifier(
        trained.model,
        trained.classes,
        trained.dataset,
        trained.epochs,
        framing_of(trained.recipe),
        normalization_of(trained.recipe),
        device.place,
        _runner(model, Precision.named(trained.recipe.precision, device.kind), device),
        f"after {trained.epochs:g} epochs of {trained.dataset}",
        top1=trained.top1,
    )


def _runner(model: nn.Module, precision: Precision, device: Device) -> Callable[[Tensor], Tensor]:
    def run(images: Tensor) -> Tensor:
        with torch.inference_mode(), precision.context(device.place):
            return model(images).float()

    return run


def _published(name: str, tag: str | None, device: Device) -> Classifier:
    """A model with published weights, and with their preprocessing."""
    model = card(name).name
    chosen = checkpoint(model, tag)
    classes = imagenet_classes(chosen)
    if not classes:
        raise RequestError(
            f"{chosen.name} has no classifier for ImageNet-1k's classes; `favor show {model}` lists other weights"
        )
    network = create_model(model, img_size=chosen.img_size)
    give_pretrained_weights(network, chosen)
    return Classifier(
        model,
        classes,
        "imagenet-1k",
        None,
        framing_for(chosen),
        normalization_for(chosen),
        device.place,
        _runner(fuse(network).to(device.place), Precision.named("fp32", device.kind), device),
        f"with {chosen.name}" + (", trained without reducing tokens" if chosen.borrowed else ""),
        imagenet_class_names(),
    )


def _exported(file: Path, device: Device) -> Classifier:
    form = next(form for form, ending in ENDINGS.items() if ending == file.suffix)
    if form not in OPENERS:
        raise RequestError(f"{file}: may hold code, which favor does not run; export the model to .onnx or .xml")
    exported = read_card(file)
    if not exported.classes or exported.dataset is None or exported.epochs is None:
        raise RequestError(
            f"{file}: {exported.model} with {exported.source} knows no classes; export a checkpoint of it"
        )
    session = open_file(file, Choice(OPENERS[form], exported.precision, device.kind))

    def run(images: Tensor) -> Tensor:
        batches = (images,) if exported.dynamic_batch else images.split(1)
        return torch.cat([session.run(batch) for batch in batches])

    return Classifier(
        exported.model,
        exported.classes,
        exported.dataset,
        exported.epochs,
        Framing(exported.img_size, crop_ratio=exported.crop_ratio),
        Normalization(exported.mean, exported.std),
        torch.device("cpu"),
        run,
        f"after {exported.epochs:g} epochs of {exported.dataset}",
    )


def evaluate_checkpoint(
    path: Path,
    data: str | None,
    device: Device,
    processes: Processes,
    batch_size: int,
    workers: int,
    pretrained: bool | str = False,
) -> tuple[Classifier, DataSet, Scores]:
    """Evaluate a model on a data set, by default the one that it was trained on."""
    trained = open_classifier(path, device, pretrained)
    known = open_data(data) if data else own_data(path, trained.dataset)
    if known.classes != trained.classes:
        raise RequestError(
            f"{path} has {some(trained.classes)}, {known.name} has {some(known.classes)}; "
            "evaluate on data with the same classes, or `favor finetune` it on these"
        )
    loader = EvaluationLoader(
        known.evaluation,
        batch_size,
        trained.framing,
        trained.normalization,
        broken=BrokenImages(),
        share=processes.share,
        workers=workers,
        device=trained.place,
    )
    scores = score(trained.run, loader, trained.place, processes)
    if not math.isfinite(scores.loss):
        raise WorkError(f"{path}: the loss is {scores.loss}: the model's weights or outputs are not finite")
    return trained, known, scores


def own_data(path: Path, dataset: str) -> DataSet:
    """The data set that a model was trained on, found by its name; a different one is refused."""
    if dataset.startswith("folder:"):
        raise RequestError(f"{path} was trained on {dataset}; say where it is now: --data folder:PATH")
    known = open_data(dataset.partition("[")[0])
    if known.name != dataset:
        raise RequestError(f"{path} was trained on {dataset}, but {known.name} was found; choose with --data")
    return known


def predict(
    path: Path, images: Sequence[Path], device: Device, guesses: int = 5, pretrained: bool | str = False
) -> tuple[Classifier, list[Prediction]]:
    """The most likely classes of image files, cropped and normalized as in the evaluation."""
    trained = open_classifier(path, device, pretrained)
    names = trained.class_names or trained.classes
    found = []
    for image in images:
        file = ImageFiles(FolderPlaces(Path(), [str(image)]), np.zeros(1, dtype=np.int64))
        fetched = file.fetch(np.zeros(1, dtype=np.int64), center_cut(trained.framing, 1))
        if fetched.broken:
            found.append(Prediction(str(image), (), fetched.broken[0].reason))
            continue
        logits = trained.run(trained.normalization(fetched.images.to(trained.place).float().div_(255)))
        likeliest = logits.softmax(1).topk(min(guesses, len(trained.classes)))
        pairs = zip(likeliest.values[0].tolist(), likeliest.indices[0].tolist(), strict=True)
        told = tuple(Guess(names[label], probability) for probability, label in pairs)
        found.append(Prediction(str(image), told))
    return trained, found
