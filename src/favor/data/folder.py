"""Images in folders: one folder per class, below `train` and `val`, or without a split."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from favor.data.draws import Draw, uniform
from favor.data.image_files import FolderPlaces, ImageFiles
from favor.data.sources import Splits
from favor.errors import RequestError, shown

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".gif")
TRAIN_FOLDERS = ("train", "training", "imagenet21k_train")
EVALUATION_FOLDERS = ("val", "validation", "valid", "test", "imagenet21k_val")
_EVALUATION_SHARE = 0.1
_LONGEST_PATH = 4096  # bytes, the system's limit


def open_folder(root: Path) -> Splits:
    """Class folders below `train` and `val`; without these, a fixed tenth of the images is for evaluation."""
    train, evaluation = first_folder(root, TRAIN_FOLDERS), first_folder(root, EVALUATION_FOLDERS)
    if (train is None) != (evaluation is None):
        there, wanted = (evaluation, TRAIN_FOLDERS) if train is None else (train, EVALUATION_FOLDERS)
        raise RequestError(f"{root}: has {there.name if there else ''}/ but none of {', '.join(wanted)}; add it")
    if train is None or evaluation is None:
        return _split_at_random(root)
    classes = class_folders(train)
    return Splits(classes, images_by_class(train, classes), images_by_class(evaluation, classes))


def first_folder(root: Path, names: tuple[str, ...]) -> Path | None:
    """The first of these folders that exists."""
    return next((root / name for name in names if (root / name).is_dir()), None)


def class_folders(folder: Path) -> tuple[str, ...]:
    """The classes sorted by name; this order gives their numbers."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise RequestError(f"{folder}: it has no folders; it needs one folder of images per class")
    for name in names:
        if not name.isprintable():  # it becomes the class's name, in records and checkpoints
            raise RequestError(f"{folder}: the folder {shown(name)} is not a valid class name; rename it")
    return tuple(names)


def images_by_class(folder: Path, classes: tuple[str, ...]) -> ImageFiles:
    """The images below the folders of these classes; folders of other classes are refused."""
    unknown = set(class_folders(folder)).difference(classes)
    if unknown:
        raise RequestError(f"{folder}: class {min(unknown)!r} is not among the classes of the training images")
    relative, labels = _listed(folder, classes)
    return image_list(folder, relative, labels)


def image_list(folder: Path, relative: list[str], labels: list[int]) -> ImageFiles:
    """Images with labels from the authors' list, all below the folder."""
    if not relative:
        raise RequestError(f"{folder}: it has no images")
    for name in relative:
        if name.startswith("/") or ".." in name.split("/") or "\0" in name or len(name) > _LONGEST_PATH:
            raise RequestError(f"{folder}: the list of its images names {shown(name)}, which is not a file in it")
    return ImageFiles(FolderPlaces(folder, relative), np.array(labels, dtype=np.int64))


def _split_at_random(root: Path) -> Splits:
    classes = class_folders(root)
    relative, labels = _listed(root, classes)
    for_evaluation = uniform(0, 0, np.arange(len(relative)), Draw.SPLIT) < _EVALUATION_SHARE
    if not for_evaluation.any():
        raise RequestError(f"{root}: {len(relative)} images are too few to split; sort them into train/ and val/")

    def part(chosen: NDArray[np.bool_]) -> ImageFiles:
        which = np.flatnonzero(chosen)
        return image_list(root, [relative[k] for k in which], [labels[k] for k in which])

    return Splits(classes, part(~for_evaluation), part(for_evaluation))


def _listed(folder: Path, classes: tuple[str, ...]) -> tuple[list[str], list[int]]:
    """All images with their labels, in an order that does not depend on the file system."""
    relative, labels = [], []
    for label, name in enumerate(classes):
        files_of_class = []
        for parent, _, files in os.walk(folder / name):
            below = os.path.relpath(parent, folder)
            files_of_class += [os.path.join(below, file) for file in files if file.lower().endswith(IMAGE_ENDINGS)]  # noqa: PTH118 - a million of them
        relative += sorted(files_of_class)
        labels += [label] * len(files_of_class)
    return relative, labels
