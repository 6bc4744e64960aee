"""Images in folders: one folder per class, below `train` and `val`, or without a split."""

import logging
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from favor.data.class_folders import (
    EVALUATION_FOLDERS,
    Listing,
    check_classes,
    class_folders,
    first_folder,
    listed,
    refuse_loose_images,
    split,
    splits_of,
)
from favor.data.image_files import FolderPlaces, ImageFiles, upright
from favor.data.sources import Splits
from favor.errors import RequestError, shown
from favor.text import plural

_log = logging.getLogger("favor.data")
_LONGEST_PATH = 4096  # bytes, the system's limit


def open_folder(root: Path) -> Splits:
    """Class folders below `train` and `val`; without these, a fixed fifth of each class is for evaluation."""
    train, evaluation = splits_of(root)
    if train is not None and evaluation is not None:
        classes = class_folders(train)
        return Splits(classes, images_by_class(train, classes), images_by_class(evaluation, classes))
    classes = class_folders(root)
    for_training, for_evaluation = split(listed(root, classes))
    if for_training and not for_evaluation:
        raise RequestError(
            f"{root}: {plural(len(for_training), 'image')} cannot be split; each class needs two or more"
        )
    return Splits(classes, _image_files(root, for_training), _image_files(root, for_evaluation))


def open_own_images(root: Path) -> Splits:
    """The same for a folder of a user's own, of which every class must have something to learn from."""
    splits = open_folder(root)
    train, evaluation = splits_of(root)
    check_classes(train or root, splits.classes, splits.train.labels.tolist())
    for folder in filter(None, (root, train, evaluation)):
        refuse_loose_images(folder)
    return splits


def open_evaluation_images(root: Path, classes: tuple[str, ...] | None = None) -> Splits:
    """Class folders without training images: those below `val`, or without a split all of them.

    `classes` may have more than the folders; by default they are those of the folders.
    """
    folder = first_folder(root, EVALUATION_FOLDERS) or splits_of(root)[1] or root
    classes = classes or class_folders(folder)
    evaluation = images_by_class(folder, classes)
    for place in (root, folder):
        refuse_loose_images(place)
    nothing = ImageFiles(FolderPlaces(folder, []), np.empty(0, dtype=np.int64))
    return Splits(classes, nothing, evaluation)


def open_with_evaluation(root: Path, classes: tuple[str, ...], evaluation: Iterable[str]) -> Splits:
    """Class folders of which these images are for evaluation, as they were in a training run."""
    listing, wanted = listed(root, classes), set(evaluation)
    missing = wanted.difference(listing.relative)
    if missing:
        _log.warning("%s of this run's evaluation are no longer in %s", plural(len(missing), "image"), root)
    chosen = [number for number, name in enumerate(listing.relative) if name in wanted]
    rest = [number for number, name in enumerate(listing.relative) if name not in wanted]
    parts = (_image_files(root, listing.part(numbers)) for numbers in (rest, chosen))
    return Splits(classes, *map(upright, parts))


def images_by_class(folder: Path, classes: tuple[str, ...]) -> ImageFiles:
    """The images below the folders of these classes; folders of other classes are refused."""
    return _image_files(folder, listed(folder, classes))


def image_list(folder: Path, relative: list[str], labels: list[int]) -> ImageFiles:
    """Images with labels from the authors' list, all below the folder."""
    if not relative:
        raise RequestError(f"{folder}: it has no images")
    for name in relative:
        if name.startswith("/") or ".." in name.split("/") or "\0" in name or len(name) > _LONGEST_PATH:
            raise RequestError(f"{folder}: the list of its images names {shown(name)}, which is not a file in it")
    return ImageFiles(FolderPlaces(folder, relative), np.array(labels, dtype=np.int64))


def _image_files(folder: Path, listing: Listing) -> ImageFiles:
    return image_list(folder, list(listing.relative), list(listing.labels))
