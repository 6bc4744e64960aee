"""From `--data NAME[:PATH]` to a loaded dataset."""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from favor.data.archive import ARCHIVE_ENDINGS, is_archive, unpacked
from favor.data.cifar import open_cifar10, open_cifar100
from favor.data.class_folders import EVALUATION_FOLDERS, TRAIN_FOLDERS, first_folder
from favor.data.digits import open_digits
from favor.data.download import downloaded
from favor.data.folder import open_evaluation_images, open_folder, open_own_images
from favor.data.idx import open_fashion_mnist
from favor.data.image_files import upright
from favor.data.matlab_lists import open_cars, open_flowers102
from favor.data.names import DataRequest, NamedSet, find, parse
from favor.data.shard_index import ShardIndex, read_index
from favor.data.shards import has_shards, numbered_classes, open_evaluation_shards, open_indexed, open_shards
from favor.data.sources import DataSet, Splits
from favor.data.synthetic import open_synthetic
from favor.data.tiny_imagenet import open_tiny_imagenet
from favor.errors import RequestError, WorkError, one_line

_log = logging.getLogger("favor.data")
_WORDNET_ID = re.compile(r"n\d{8}")


def open_data(text: str) -> DataSet:
    """The dataset for `NAME` or `NAME:PATH`.

    >>> digits = open_data("digits")
    >>> len(digits.train), len(digits.evaluation), digits.num_classes
    (1437, 360, 10)
    """
    found = _open(text, READERS)
    if not len(found.train):
        raise RequestError(f"{found.place}: no training images in the shards; only `favor evaluate` can use them")
    return found


def open_for_evaluation(text: str, classes: tuple[str, ...], *, whole: bool) -> DataSet:
    """The dataset on which a model of these classes is evaluated: of class folders and shards, `val` is enough.

    Without a split, all images of a user's own folder are evaluated; those of a known set only if `whole`.
    """

    def known_set(root: Path) -> Splits:
        all_of_it = whole and first_folder(root, TRAIN_FOLDERS) is None
        return open_evaluation_images(root) if all_of_it else open_folder(root)

    known = partial(_val_alone_or, known_set)
    own = partial(_shards_or, partial(open_evaluation_images, classes=classes), open_evaluation_shards)
    found = _open(text, {**READERS, **dict.fromkeys(_IN_CLASS_FOLDERS, known), "folder": own})
    return _with_wordnet_ids(found, parse(text).known, classes)


def open_to_copy(text: str) -> DataSet:
    """The dataset as `favor shards` copies it: with its training images, or without if it has only `val`."""
    own, known = (partial(_val_alone_or, read) for read in (open_own_images, open_folder))
    return _open(text, {**READERS, **dict.fromkeys(_IN_CLASS_FOLDERS, known), "folder": own})


def _val_alone_or(class_folders: Callable[[Path], Splits], root: Path) -> Splits:
    """Shards or class folders, without training images if there are only those of `val`."""
    train, evaluation = (first_folder(root, names) for names in (TRAIN_FOLDERS, EVALUATION_FOLDERS))
    is_alone = train is None and evaluation is not None
    return _shards_or(open_evaluation_images if is_alone else class_folders, open_evaluation_shards, root)


def _with_wordnet_ids(found: DataSet, known: NamedSet, classes: tuple[str, ...]) -> DataSet:
    """ImageNet's shards number the classes in the order of their WordNet ids, which are the names of its folders."""
    are_wordnet_ids = list(classes) == sorted(filter(_WORDNET_ID.fullmatch, classes))
    if known.name != "imagenet-1k" or found.classes != numbered_classes(len(classes)) or not are_wordnet_ids:
        return found
    _log.warning(
        "%s: the shards number their classes; taking 0 to %d for ImageNet's WordNet ids in their order, %s to %s",
        *(found.place, len(classes) - 1, classes[0], classes[-1]),
    )
    return replace(found, classes=classes)


def _open(text: str, readers: Mapping[str, Callable[[Path], Splits]]) -> DataSet:
    request = parse(text)
    known = request.known
    place = place_of(request)
    if place is None:
        return _named(known, INSIDE_PACKAGE[known.name](), "inside the package")
    try:
        root = unpacked(place) if is_archive(place) else place
        if not root.is_dir():
            endings = ", ".join(ARCHIVE_ENDINGS)
            raise RequestError(f"dataset {text}: {place} is neither a folder nor an archive ({endings})")
        index = read_index(root)
        splits = readers[known.name](root) if index is None else _open_indexed(request, root, index)
    except OSError as error:  # such as an unreadable folder or a failing disk
        raise WorkError(f"dataset {text}: {one_line(error)}") from error
    _check_classes(request, splits, place)
    if known.needs_path:  # the user's own images
        splits = replace(splits, train=upright(splits.train), evaluation=upright(splits.evaluation))
    return _named(known, splits, str(place))


def place_of(request: DataRequest) -> Path | None:
    """The folder or archive of a set, downloaded if it is missing; None if the set is inside the package."""
    return None if request.known.name in INSIDE_PACKAGE else find(request) or downloaded(request.known)


def _open_indexed(request: DataRequest, root: Path, index: ShardIndex) -> Splits:
    if not request.known.needs_path and index.data != request.known.name:
        raise RequestError(f"{root}: holds shards of {index.data}, not of {request.known.name}; use folder:{root}")
    return open_indexed(root, index)


def _shards_or(class_folders: Callable[[Path], Splits], shards: Callable[[Path], Splits], root: Path) -> Splits:
    return shards(root) if has_shards(root) else class_folders(root)


def _check_classes(request: DataRequest, splits: Splits, place: Path) -> None:
    known = request.known
    if known.num_classes is not None and len(splits.classes) != known.num_classes:
        raise RequestError(
            f"{known.name} has {known.num_classes} classes, but {len(splits.classes)} were found; "
            "for your own images write folder:PATH"
        )
    if len(splits.classes) < 2:
        raise RequestError(
            f"{place}: only one class, {splits.classes[0]!r}; it needs two or more class folders. "
            "Is the path one level too high?"
        )


def _named(known: NamedSet, splits: Splits, place: str) -> DataSet:
    """Name a subset of a known set as such, so that its results are never taken for those of the whole.

    Without training images, the number of evaluation images decides.
    """
    size = len(splits.train), len(splits.evaluation)
    whole = known.size is None or size in (known.size, (0, known.size[1]))
    name = known.name if whole else f"{known.name}[{size[0]}+{size[1]}]"
    return DataSet(name, splits.classes, splits.train, splits.evaluation, place)


INSIDE_PACKAGE: dict[str, Callable[[], Splits]] = {"digits": open_digits, "synthetic": open_synthetic}
"""The datasets inside the package, by name."""
_IN_CLASS_FOLDERS = ("places365", "imagenet-1k", "imagenet-21k")
READERS: dict[str, Callable[[Path], Splits]] = {
    "cifar10": open_cifar10,
    "cifar10-mini": open_cifar10,
    "cifar100": open_cifar100,
    "fashion-mnist": open_fashion_mnist,
    "tiny-imagenet": open_tiny_imagenet,
    "flowers102": open_flowers102,
    "cars": open_cars,
    **dict.fromkeys(_IN_CLASS_FOLDERS, partial(_shards_or, open_folder, open_shards)),
    "folder": partial(_shards_or, open_own_images, open_shards),
}
"""What reads the files of each other dataset, given their folder."""
