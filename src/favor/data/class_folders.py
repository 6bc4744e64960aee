"""Folders of images as people have them: which files are images, which class each belongs to, and a split.

Imports no torch.
"""

import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from favor.errors import RequestError, shown
from favor.text import plural

IMAGE_ENDINGS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".gif")
UNREADABLE_ENDINGS = (
    *(".heic", ".heif", ".hif", ".avif", ".jxl", ".jp2", ".psd"),
    *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".rw2", ".orf", ".pef", ".srw"),  # raw
)
"""Image formats that favor does not decode: refused, since it would go unnoticed if they were left out."""
CONVERT = "convert it to JPEG, for example with ImageMagick: `magick FILE FILE.jpg`"
TRAIN_FOLDERS = ("train", "training", "imagenet21k_train")
EVALUATION_FOLDERS = ("val", "validation", "valid", "test", "imagenet21k_val")
EVALUATION_SHARE = 0.2
_OF_PROGRAMS = frozenset({"__macosx", "@eadir", "$recycle.bin"})  # made by archivers and file servers, not by people


@dataclass(frozen=True)
class Listing:
    """Image files below a folder as relative paths, with the numbers of their classes."""

    relative: tuple[str, ...]
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.relative)

    def part(self, numbers: Iterable[int]) -> "Listing":
        """The files of these numbers."""
        chosen = list(numbers)
        return Listing(tuple(self.relative[k] for k in chosen), tuple(self.labels[k] for k in chosen))


def splits_of(root: Path) -> tuple[Path | None, Path | None]:
    """The folders of the training and the evaluation images; none if the folder is not split."""
    train, evaluation = first_folder(root, TRAIN_FOLDERS), first_folder(root, EVALUATION_FOLDERS)
    if train is not None and evaluation is None:
        wanted = ", ".join(EVALUATION_FOLDERS[:-1])
        raise RequestError(f"{root}: has {train.name}/ but none of {wanted}; add one, or pass {train} to split it")
    if train is None and evaluation is not None:
        wanted = ", ".join(TRAIN_FOLDERS[:-1])
        raise RequestError(f"{root}: has {evaluation.name}/ but none of {wanted}; add one")
    if train is not None and evaluation is not None and not folders_in(evaluation):
        raise RequestError(
            f"{root}: {evaluation.name}/ has no class folders, so its images have no labels; add them, or pass {train} "
            "to split it"
        )
    return train, evaluation


def first_folder(root: Path, names: tuple[str, ...]) -> Path | None:
    """The first of these folders that exists, in upper or lower case."""
    there = {folder.lower(): folder for folder in sorted(folders_in(root), reverse=True)}
    return next((root / there[name] for name in names if name in there), None)


def folders_in(folder: Path) -> list[str]:
    """The folders directly below a folder, without hidden and system folders, in no order."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir() and _is_of_people(entry.name)]


def class_folders(folder: Path) -> tuple[str, ...]:
    """The classes sorted by name; this order gives their numbers."""
    names = sorted(folders_in(folder))
    if not names:
        raise RequestError(f"{folder}: it has no folders; it needs one folder of images per class")
    for name in names:
        if not name.isprintable():  # it becomes the class's name, in records and checkpoints
            raise RequestError(f"{folder}: the folder {shown(name)} is not a valid class name; rename it")
    return tuple(names)


def listed(folder: Path, classes: tuple[str, ...]) -> Listing:
    """All images of these classes, in an order that does not depend on the file system; other classes are refused."""
    composed = {unicodedata.normalize("NFC", name): name for name in class_folders(folder)}
    unknown = set(composed).difference(unicodedata.normalize("NFC", name) for name in classes)
    if unknown:
        raise RequestError(
            f"{folder}: class {min(unknown)!r} is not among the classes of the training images; remove its folder, or "
            "train with this class: `favor finetune`"
        )
    relative: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        # macOS writes accents as letters of their own, so one name may be spelled in two ways.
        below = composed.get(unicodedata.normalize("NFC", name))
        found = [] if below is None else [os.path.join(below, file) for file in _readable(folder / below)]  # noqa: PTH118 - a million of them
        relative += found
        labels += [label] * len(found)
    return Listing(tuple(relative), tuple(labels))


def images_below(folder: Path) -> tuple[list[str], list[str]]:
    """The images in a folder and below it, as sorted relative paths: those that favor reads, and the others."""
    files = sorted(_files(folder))
    readable = [file for file in files if file.lower().endswith(IMAGE_ENDINGS)]
    return readable, [file for file in files if file.lower().endswith(UNREADABLE_ENDINGS)]


def check_classes(folder: Path, classes: tuple[str, ...], labels: Iterable[int]) -> None:
    """Refuse class folders that have nothing to learn from."""
    empty = sorted(set(range(len(classes))).difference(labels))
    if empty:
        raise RequestError(
            f"{folder}: class {classes[empty[0]]!r} has no image to learn from; put two or more into each class "
            "folder, or remove it"
        )


def refuse_loose_images(folder: Path) -> None:
    """Refuse images outside of all class folders: it would go unnoticed if they were left out."""
    with os.scandir(folder) as entries:
        loose = sorted(entry.name for entry in entries if entry.is_file() and _is_image_of_people(entry.name))
    if loose:
        raise RequestError(
            f"{folder}: {plural(len(loose), 'image')} outside of the class folders, such as {shown(loose[0])}; move it "
            "into one of them, or away"
        )


def _readable(folder: Path) -> list[str]:
    """The images of a class; formats that favor does not read are refused."""
    images, others = images_below(folder)
    if others:
        raise RequestError(
            f"{folder}: {plural(len(others), 'image')} in a format that favor does not read, such as {others[0]!r}; "
            "convert to JPEG and remove the originals (ImageMagick: `mogrify -format jpg FILES`)"
        )
    return images


def split(listing: Listing) -> tuple[Listing, Listing]:
    """A fifth of each class for evaluation, at least one image, and the rest for training.

    Which images these are follows from their paths alone. A class of one image is for training only; if all classes
    are that small, a fifth of them is for evaluation.
    """
    sizes = Counter(listing.labels)
    small = max(sizes.values(), default=0) < 2
    for_evaluation: set[int] = set()
    by_class: dict[int, list[int]] = {}
    for number, label in enumerate(listing.labels):
        by_class.setdefault(0 if small else label, []).append(number)
    for numbers in by_class.values():
        count = max(1, round(EVALUATION_SHARE * len(numbers))) if len(numbers) > 1 else 0
        for_evaluation.update(sorted(numbers, key=lambda number: _draw(listing.relative[number]))[:count])
    rest = (number for number in range(len(listing)) if number not in for_evaluation)
    return listing.part(rest), listing.part(sorted(for_evaluation))


def count_training_images(root: Path) -> int:
    """The number of training images in a folder; 0 for other layouts."""
    folder = first_folder(root, TRAIN_FOLDERS)
    images = sum(file.lower().endswith(IMAGE_ENDINGS) for file in _files(folder or root))
    return images if folder else round((1 - EVALUATION_SHARE) * images)


def _draw(relative: str) -> bytes:
    """A random key that belongs to a path."""
    return blake2b(os.fsencode(relative), digest_size=16).digest()


def _files(folder: Path) -> Iterator[str]:
    """The files in a folder and below it, in no order; a link to a folder is followed unless it leads back up."""
    waiting: list[tuple[str, str, tuple[str, ...]]] = [(str(folder), "", ())]
    while waiting:
        place, below, above = waiting.pop()
        real = os.path.realpath(place)
        if real in above:
            continue
        with os.scandir(place) as entries:
            for entry in entries:
                if not _is_of_people(entry.name):
                    continue
                relative = os.path.join(below, entry.name)  # noqa: PTH118 - a million of them
                # Unlike `is_dir`, `isdir` raises no error for a link to itself, but it reads every file's status.
                if os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir():  # noqa: PTH112
                    waiting.append((entry.path, relative, (*above, real)))
                else:
                    yield relative


def _is_image_of_people(name: str) -> bool:
    return _is_of_people(name) and name.lower().endswith(IMAGE_ENDINGS + UNREADABLE_ENDINGS)


def _is_of_people(name: str) -> bool:
    """Whether a file or folder was made by a person: not `.DS_Store`, not the `._cat.jpg` that macOS adds."""
    return not name.startswith(".") and name.lower() not in _OF_PROGRAMS
