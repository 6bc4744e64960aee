"""Evaluation and prediction from a model file, or from an exported file and its card."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from favor.data.augment import Batch, Normalization
from favor.data.broken import BrokenImages
from favor.data.class_folders import CONVERT, IMAGE_ENDINGS, images_below
from favor.data.framing import Framing
from favor.data.image_files import FolderPlaces, ImageFiles
from favor.data.loader import EvaluationLoader, fetched_in_order
from favor.data.names import parse
from favor.data.opening import open_data, open_for_evaluation, place_of
from favor.data.sources import DataSet
from favor.errors import RequestError, WorkError
from favor.machine.best_batch import search_best_batch
from favor.machine.device import Device
from favor.machine.precision import Precision, training_precision
from favor.runtime.card import read_card, require_fitting
from favor.runtime.names import ENDINGS, OPENERS, runs_on
from favor.runtime.opening import open_foreign
from favor.runtime.session import Choice
from favor.trace.meta_shortcuts import SkipInitialization
from favor.training.checkpoint import load_model_file
from favor.training.distributed import Processes
from favor.training.evaluation import Scores, score
from favor.training.initial_weights import checkpoint_file
from favor.training.preprocessing import fill_of, framing_for, framing_of, normalization_for, normalization_of
from favor.training.run_data import RunData, moved_to, open_run_data, read_run_data
from favor.training.state import Trained, some
from favor.zoo.checkpoints import (
    Checkpoint,
    checkpoint,
    give_pretrained_weights,
    imagenet_class_names,
    imagenet_classes,
)
from favor.zoo.fuse import fuse
from favor.zoo.registry import card, create_model
from favor.zoo.weights import load_weights

_log = logging.getLogger("favor.training")

GUESSES = 5
WORTH_SEARCHING = 100
"""The search for the best batch size is worthwhile from this many of the largest batches on."""
IMAGENET = "imagenet-1k"
"""The dataset whose classes published weights have."""


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


def load_trained(path: Path, device: torch.device) -> tuple[Trained, nn.Module]:
    """The model of a checkpoint or of a run's folder, ready for inference."""
    file = checkpoint_file(path)
    trained, weights = load_model_file(file)
    sides, classes = (trained.img_size, trained.img_size), len(trained.classes)
    build = partial(create_model, trained.model, num_classes=classes, img_size=sides, in_chans=trained.in_chans)
    with torch.device("meta"), SkipInitialization():  # a file of a kilobyte may name a model of gigabytes
        needed = sum(parameter.numel() for parameter in build().parameters())
    found = sum(weight.numel() for weight in weights.values())
    if found < needed:
        raise RequestError(f"{file}: {trained.model} has {needed:,} weights, the file {found:,}; download it again")
    model = build()
    if load_weights(model, weights, sides).replaced:
        raise RequestError(f"{file}: its classifier does not fit its {classes} classes; download it again")
    if trained.recipe.img_size != trained.img_size:  # images are prepared as the recipe says
        raise RequestError(
            f"{file}: a model for {trained.img_size} px, a recipe for {trained.recipe.img_size} px; download it again"
        )
    return trained, fuse(model).to(device)


@dataclass(frozen=True)
class Classifier:
    """A trained model that is ready to run: its classes, its preprocessing, and how to run a batch.

    `training` says where its weights are from; `epochs` and `top1`, that of its last evaluation, are None if unknown.
    `class_names` are the classes in words, if they differ from their names.
    """

    model: str
    classes: tuple[str, ...]
    dataset: str
    epochs: float | None
    framing: Framing
    normalization: Normalization
    device: torch.device
    run: Callable[[Tensor], Tensor]
    training: str
    class_names: tuple[str, ...] = ()
    top1: float | None = None
    precision: str = "fp32"

    @property
    def img_size(self) -> int:
        return self.framing.img_size


def open_classifier(
    path: Path, device: Device, pretrained: bool | str = False, img_size: int | None = None
) -> Classifier:
    """The model of a checkpoint, of a run's folder, or of a file that `favor export` wrote.

    With `pretrained`, `path` is the name of a model, and its published weights are used: the default ones or a tag's.
    They run at any image size; all others at their own.
    """
    if pretrained is not False:
        return _published(str(path), None if pretrained is True else pretrained, img_size, device)
    if img_size is not None:
        raise RequestError(f"{path} runs at its own image size; --img-size is for published weights (--pretrained)")
    if path.suffix in ENDINGS.values():
        return _exported(path, device)
    trained, model = load_trained(path, device.torch_device)
    precision = training_precision(trained.recipe.precision, device.kind)
    return Classifier(
        trained.model,
        trained.classes,
        trained.dataset,
        trained.epochs,
        framing_of(trained.recipe),
        normalization_of(trained.recipe),
        device.torch_device,
        _runner(model, Precision.named(precision, device.kind), device),
        _after(trained.epochs, trained.dataset),
        top1=trained.top1,
        precision=precision,
    )


def _after(epochs: float, dataset: str) -> str:
    """How long a model was trained.

    >>> _after(1.0, "digits"), _after(2.5, "digits")
    ('after 1 epoch of digits', 'after 2.5 epochs of digits')
    """
    return f"after {epochs:g} {'epoch' if epochs == 1 else 'epochs'} of {dataset}"


def _runner(model: nn.Module, precision: Precision, device: Device) -> Callable[[Tensor], Tensor]:
    def run(images: Tensor) -> Tensor:
        with torch.inference_mode(), precision.context(device.torch_device):
            return model(images).float()

    return run


@dataclass(frozen=True)
class Published:
    """A model with published weights for ImageNet-1k's classes, and their preprocessing."""

    name: str
    network: nn.Module
    weights: Checkpoint
    classes: tuple[str, ...]
    framing: Framing

    @property
    def source(self) -> str:
        """Where its weights are from, in words."""
        from_file = f"the weights in {self.weights.file}, images prepared as for "
        borrowed = ", trained without reducing tokens" if self.weights.borrowed else ""
        return (from_file if self.weights.file else "") + self.weights.name + borrowed


def load_published(name: str, tag: str | None, img_size: int | None = None) -> Published:
    """A model of the zoo with published weights, the default ones or a tag's; downloaded unless cached.

    Without an image size, it is that of the training.
    """
    model = card(name).name
    chosen = checkpoint(model, tag, img_size)
    classes = imagenet_classes(chosen)
    if not classes:
        raise RequestError(
            f"{chosen.name} has no classifier for ImageNet-1k's classes; `favor show {model}` lists other weights"
        )
    framing = framing_for(chosen, img_size)  # refused before the download
    network = create_model(model, img_size=framing.img_size)
    give_pretrained_weights(network, chosen)
    return Published(model, network, chosen, classes, framing)


def _published(name: str, tag: str | None, img_size: int | None, device: Device) -> Classifier:
    """A model with published weights, and with their preprocessing."""
    published = load_published(name, tag, img_size)
    network = fuse(published.network).to(device.torch_device)
    return Classifier(
        published.name,
        published.classes,
        IMAGENET,
        None,
        published.framing,
        normalization_for(published.weights),
        device.torch_device,
        _runner(network, Precision.named("fp32", device.kind), device),
        f"with {published.source}",
        imagenet_class_names(),
    )


def _exported(file: Path, device: Device) -> Classifier:
    """The model of an exported file, on the CPU where its runtime cannot use the device."""
    form = next(form for form, ending in ENDINGS.items() if ending == file.suffix)
    if form not in OPENERS:
        raise RequestError(f"{file}: may hold code, which favor does not run; export the model to .onnx or .xml")
    exported, runtime = read_card(file), OPENERS[form]
    if not exported.classes or exported.dataset is None:
        raise RequestError(
            f"{file}: {exported.model} with {exported.source} knows no classes; export a checkpoint of it"
        )
    place = str(device.torch_device)
    if not runs_on(runtime, device.kind):
        _log.warning("%s: running on the CPU, since %s does not run on %s here", file, runtime, device.kind)
        place = "cpu"
    session = open_foreign(file, Choice(runtime, exported.precision, place))
    require_fitting(exported, file, form, session.shapes)

    def run(images: Tensor) -> Tensor:
        batches = (images,) if exported.dynamic_batch else images.split(1)
        logits = torch.cat([session.run(batch) for batch in batches])
        if logits.shape[1] != len(exported.classes):
            raise RequestError(
                f"{file}: has {logits.shape[1]} outputs, but its card says {len(exported.classes)} classes; "
                "export the model again"
            )
        return logits

    return Classifier(
        exported.model,
        exported.classes,
        exported.dataset,
        exported.epochs,
        Framing(
            exported.img_size,
            crop_ratio=exported.crop_ratio,
            interpolation=exported.interpolation,
            mode=exported.crop_mode,
            fill=fill_of(exported.mean),
        ),
        Normalization(exported.mean, exported.std),
        torch.device("cpu"),
        run,
        f"with {exported.source}" if exported.epochs is None else _after(exported.epochs, exported.dataset),
        exported.class_names,
        precision=exported.precision,
    )


def evaluate_checkpoint(
    path: Path,
    data: str | None,
    device: Device,
    processes: Processes,
    batch_size: int,
    workers: int,
    pretrained: bool | str = False,
    img_size: int | None = None,
    watched: Callable[[EvaluationLoader], Iterable[Batch]] = iter,
) -> tuple[Classifier, DataSet, Scores]:
    """Evaluate a model on a dataset, by default the one that it was trained on; `watched` passes the batches on."""
    if pretrained is not False:
        place_of(parse(data or IMAGENET))  # a missing dataset is refused before weights are downloaded
    trained = open_classifier(path, device, pretrained, img_size)
    known = _evaluated_on(path, trained, data, published=pretrained is not False)
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
        device=trained.device,
    )
    scores = score(trained.run, watched(loader), trained.device, processes)
    if not math.isfinite(scores.loss):
        raise WorkError(f"{path}: the loss is {scores.loss}: the model's weights or outputs are not finite")
    return trained, known, scores


def _evaluated_on(path: Path, trained: Classifier, data: str | None, published: bool) -> DataSet:
    """The dataset to evaluate on: the model's own with its split, or another; all of a folder that is not split.

    Published weights were not trained here, so no image of a known set is held out.
    """
    opened = partial(open_for_evaluation, classes=trained.classes, whole=published)
    if data is None:
        return own_data(path, trained.dataset, trained.classes, opened)
    request, kept = parse(data), None if published else run_data_of(path)
    if kept is None or request.path is None or not request.known.needs_path:
        return opened(data)
    if parse(kept.data).path == request.path.resolve():
        return open_run_data(kept, trained.classes)
    found = opened(data)
    moved = moved_to(data, found, kept)
    if moved is None:
        return found
    _log.warning("%s has the images of this training run; evaluating on those that were held out", data)
    return open_run_data(moved, trained.classes)


def own_data(
    path: Path, dataset: str, classes: tuple[str, ...], opened: Callable[[str], DataSet] = open_data
) -> DataSet:
    """The dataset that a model was trained on; a different one is refused.

    A folder is found through the `data.json` beside the checkpoint, with the evaluation images of the training.
    """
    if dataset.startswith("folder:"):
        kept = run_data_of(path)
        if kept is None:
            raise RequestError(f"{path} was trained on {dataset}; say where it is now: --data folder:PATH")
        return open_run_data(kept, classes)
    known = opened(dataset.partition("[")[0])
    if known.name != dataset:
        raise RequestError(f"{path} was trained on {dataset}, but {known.name} was found; choose with --data")
    return known


def run_data_of(path: Path) -> RunData | None:
    """What the folder of a checkpoint says about its data."""
    return read_run_data(path if path.is_dir() else path.parent)


def images_in(places: Sequence[Path]) -> tuple[list[str], list[Prediction]]:
    """The image files at these places, folders with all below them; and those in formats that favor does not read."""
    files: list[str] = []
    refused: list[Prediction] = []
    for place in places:
        if not place.is_dir():
            files.append(str(place))
            continue
        images, others = images_below(place)
        if not images and not others:
            raise RequestError(f"{place}: no images in this folder; favor reads {', '.join(IMAGE_ENDINGS)}")
        files += [str(place / image) for image in images]
        refused += [Prediction(str(place / other), (), f"not a format that favor reads; {CONVERT}") for other in others]
    return files, refused


def best_prediction_batch(trained: Classifier, images: int, most: int) -> int:
    """The batch size that classifies this number of images the fastest, at most `most`.

    The search takes as long as classifying about four of the largest batches, so that a few images do without.
    """
    if images < WORTH_SEARCHING * most:
        return most
    side = trained.framing.img_size

    def throughput(batch_size: int) -> float:
        random = torch.rand(batch_size, 3, side, side, device=trained.device)
        trained.run(random).cpu()
        began = time.perf_counter()
        trained.run(random).cpu()  # what is on the CPU has been computed
        return batch_size / (time.perf_counter() - began)

    return search_best_batch(throughput, largest=most, powers_of_two=True).best


def predict(
    trained: Classifier,
    images: Sequence[str],
    batch_size: int = 1,
    workers: int = 0,
) -> Iterator[Prediction]:
    """The most likely classes of image files in their order, cropped and normalized as in the evaluation."""
    names = trained.class_names or trained.classes
    source = ImageFiles(FolderPlaces(Path(), list(images)), np.zeros(len(images), dtype=np.int64), upright=True)
    for batch, fetched in fetched_in_order(source, trained.framing, batch_size, workers):
        answered: dict[int, Prediction] = {}
        if len(fetched.samples):
            logits = trained.run(trained.normalization(fetched.images.to(trained.device).float().div_(255)))
            if not logits.isfinite().all():
                raise WorkError(
                    "the model's outputs are not finite: its weights are damaged; train or download it again"
                )
            likeliest = logits.softmax(1).topk(min(GUESSES, len(trained.classes)))
            rows = zip(fetched.samples.tolist(), likeliest.values.tolist(), likeliest.indices.tolist(), strict=True)
            for sample, shares, labels in rows:
                ranked = tuple(Guess(names[label], share) for share, label in zip(shares, labels, strict=True))
                answered[sample] = Prediction(images[sample], ranked)
        unread = iter(fetched.broken)  # in the order of their samples
        for sample in batch.tolist():
            yield answered[sample] if sample in answered else Prediction(images[sample], (), next(unread).reason)
