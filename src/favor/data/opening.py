"""From `--data NAME[:PATH]` to a loaded data set."""

from collections.abc import Callable
from pathlib import Path

from favor.data.archive import ARCHIVE_ENDINGS, is_archive, unpacked
from favor.data.cifar import open_cifar10, open_cifar100
from favor.data.digits import open_digits
from favor.data.download import downloaded
from favor.data.folder import open_folder
from favor.data.idx import open_fashion_mnist
from favor.data.matlab_lists import open_cars, open_flowers102
from favor.data.names import DataRequest, NamedSet, find, parse
from favor.data.shards import has_shards, open_shards
from favor.data.sources import DataSet, Splits
from favor.data.synthetic import open_synthetic
from favor.data.tiny_imagenet import open_tiny_imagenet
from favor.errors import RequestError, WorkError, one_line


def open_data(text: str) -> DataSet:
    """The data set for `NAME` or `NAME:PATH`.

    >>> digits = open_data("digits")
    >>> len(digits.train), len(digits.evaluation), digits.num_classes
    (1437, 360, 10)
    """
    request = parse(text)
    known = request.known
    if known.name in _INSIDE:
        return _named(known, _INSIDE[known.name](), "inside the package")
    place = find(request) or downloaded(known)
    try:
        root = unpacked(place) if is_archive(place) else place
        if not root.is_dir():
            endings = ", ".join(ARCHIVE_ENDINGS)
            raise RequestError(f"--data {text}: {place} is neither a folder nor an archive ({endings})")
        splits = _READERS[known.name](root)
    except OSError as error:  # such as an unreadable folder or a failing disk
        raise WorkError(f"--data {text}: {one_line(error)}") from error
    _check_classes(request, splits)
    return _named(known, splits, str(place))


def _open_folder_or_shards(root: Path) -> Splits:
    return open_shards(root) if has_shards(root) else open_folder(root)


def _check_classes(request: DataRequest, splits: Splits) -> None:
    known = request.known
    if known.num_classes is not None and len(splits.classes) != known.num_classes:
        raise RequestError(
            f"{known.name} has {known.num_classes} classes, but {len(splits.classes)} were found; "
            "for your own images write folder:PATH"
        )
    if len(splits.classes) < 2:
        raise RequestError(
            f"{known.name}: only one class, {splits.classes[0]!r}; it needs two or more class folders. "
            "Is the path one level too high?"
        )


def _named(known: NamedSet, splits: Splits, place: str) -> DataSet:
    """Name a subset of a known set as such, so that its results are never taken for those of the whole."""
    size = len(splits.train), len(splits.evaluation)
    whole = known.size is None or size == known.size
    name = known.name if whole else f"{known.name}[{size[0]}+{size[1]}]"
    return DataSet(name, splits.classes, splits.train, splits.evaluation, place)


_INSIDE: dict[str, Callable[[], Splits]] = {"digits": open_digits, "synthetic": open_synthetic}
_READERS: dict[str, Callable[[Path], Splits]] = {
    "cifar10": open_cifar10,
    "cifar10-mini": open_cifar10,
    "cifar100": open_cifar100,
    "fashion-mnist": open_fashion_mnist,
    "tiny-imagenet": open_tiny_imagenet,
    "flowers102": open_flowers102,
    "cars": open_cars,
    "places365": open_folder,
    "imagenet-1k": open_folder,
    "imagenet-21k": _open_folder_or_shards,
    "folder": _open_folder_or_shards,
}
