"""The datasets by name: what they are, where favor looks for their files, and how to get them. Imports no torch."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from favor.errors import MissingHereError, RequestError, shown, unknown_name

ROOT_VARIABLE = "FAVOR_DATA"


@dataclass(frozen=True)
class NamedSet:
    """A set that favor knows.

    `places` are paths below $FAVOR_DATA; the first that exists is used. `size` is the official number of training
    and evaluation images, None if there is none.
    """

    name: str
    title: str
    num_classes: int | None
    size: tuple[int, int] | None
    places: tuple[str, ...] = ()
    how_to_get: str = ""
    needs_path: bool = False


_KNOWN = (
    NamedSet("digits", "scikit-learn's digits, 8x8 as 32x32, inside the package", 10, (1437, 360)),
    NamedSet(
        "cifar10",
        "CIFAR-10, 32x32",
        10,
        (50_000, 10_000),
        ("cifar-10-batches-bin", "cifar-10-batches-py", "cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
        "the authors' cifar-10-binary.tar.gz or cifar-10-python.tar.gz (unpacked or not)",
    ),
    NamedSet(
        "cifar10-mini",
        "a balanced subset of CIFAR-10",
        10,
        None,
        ("cifar10-mini",),
        "a folder cifar10-mini with train.bin and test.bin, records as in CIFAR-10",
    ),
    NamedSet(
        "cifar100",
        "CIFAR-100, 32x32, fine classes",
        100,
        (50_000, 10_000),
        ("cifar-100-binary", "cifar-100-python", "cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"),
        "the authors' cifar-100-binary.tar.gz or cifar-100-python.tar.gz (unpacked or not)",
    ),
    NamedSet(
        "fashion-mnist",
        "Fashion-MNIST, 28x28, grayscale",
        10,
        (60_000, 10_000),
        ("fashion-mnist", "FashionMNIST/raw", "/usr/share/datasets/fashion-mnist"),
        "the four idx files in a folder fashion-mnist (Debian: the package dataset-fashion-mnist)",
    ),
    NamedSet(
        "tiny-imagenet",
        "Tiny ImageNet, 64x64",
        200,
        (100_000, 10_000),
        (
            *("tiny-imagenet-200", "tiny-imagenet", "tiny-imagenet-200.zip", "tiny-imagenet-200.tar.xz"),
            "tiny-imagenet-200-mini.tar.xz",
        ),
        "the authors' tiny-imagenet-200.zip (unpacked or not)",
    ),
    NamedSet(
        "flowers102",
        "Oxford Flowers 102",
        102,
        (2_040, 6_149),
        ("flowers-102", "flowers102", "flowers-102-mini-192.tar.xz"),
        "a folder flowers-102 with the authors' jpg/, imagelabels.mat and setid.mat",
    ),
    NamedSet(
        "cars",
        "Stanford Cars",
        196,
        (8_144, 8_041),
        ("stanford_cars", "cars"),
        "a folder stanford_cars with cars_train/, cars_test/, devkit/ and cars_test_annos_withlabels.mat",
    ),
    NamedSet(
        "places365",
        "MIT Places365, standard",
        365,
        (1_803_460, 36_500),
        ("places365_standard", "places365", "places365standard_easyformat.tar"),
        "the authors' places365standard_easyformat.tar (unpacked as places365_standard, with train/ and val/)",
    ),
    NamedSet(
        "imagenet-1k",
        "ImageNet-1k (ILSVRC 2012)",
        1000,
        (1_281_167, 50_000),
        ("imagenet-1k", "imagenet", "ILSVRC2012", "imagenet-1k-sample-160.tar.xz"),
        "a folder imagenet-1k with train/WNID/ and val/WNID/",
    ),
    NamedSet(
        "imagenet-21k",
        "ImageNet-21k; the winter 2021 release, processed like Ridnik et al., has 10,450 classes",
        None,
        None,
        ("imagenet-21k", "imagenet21k", "imagenet21k_resized"),
        "a folder imagenet-21k with train/WNID/ and val/WNID/, or with WebDataset shards (.tar) in train/ and val/",
    ),
    NamedSet(
        "folder",
        "your own images: one folder per class, below train/ and val/ or without a split",
        None,
        None,
        needs_path=True,
    ),
    NamedSet("synthetic", "generated images, to test pipelines and throughput", 10, (2_048, 512)),
)

_ALSO_KNOWN_AS = {"imagenet": "imagenet-1k"}

SETS: Mapping[str, NamedSet] = MappingProxyType({known.name: known for known in _KNOWN})


@dataclass(frozen=True)
class DataRequest:
    """The request `--data NAME[:PATH]`."""

    known: NamedSet
    path: Path | None


def parse(text: str) -> DataRequest:
    """Read `NAME` or `NAME:PATH`.

    >>> parse("folder:my/photos").path
    PosixPath('my/photos')
    """
    name, colon, path = text.partition(":")
    name = _ALSO_KNOWN_AS.get(name, name)
    if name not in SETS:
        raise unknown_name("dataset", name, SETS, f"known: {', '.join(SETS)}; your own images: folder:PATH")
    known = SETS[name]
    if colon and not path:
        raise RequestError(f"dataset {shown(text)}: no path after the colon; write {name}:PATH")
    if path and not (known.places or known.needs_path):
        raise RequestError(f"dataset {shown(text)}: {name} has no files, so it takes no path; write {name}")
    if known.needs_path and not path:
        raise RequestError(f"dataset {text}: where are the images? Write {name}:PATH")
    if not path:
        return DataRequest(known, None)
    try:
        place = Path(path).expanduser()
    except RuntimeError as error:  # `~` and a name that no user has
        raise RequestError(f"dataset {shown(text)}: {error}; write the whole path") from error
    # Records name a folder's dataset after it, and `.` and `..` are the names of many.
    return DataRequest(known, place.resolve() if place.name in ("", "..") else place)


def find(request: DataRequest) -> Path | None:
    """The folder or archive of a set; None if it is missing. A given path must exist."""
    if request.path is not None:
        if not os.path.exists(request.path):  # noqa: PTH110 - Path.exists raises on names that are too long
            text = f"{request.known.name}:{request.path}"
            raise MissingHereError(f"dataset {shown(text)}: no such folder or file")
        return request.path
    root = os.environ.get(ROOT_VARIABLE)
    places = [Path(place) for place in request.known.places]
    candidates = [Path(root) / place if root else place for place in places if root or place.is_absolute()]
    return next((place for place in candidates if place.exists()), None)


def missing(known: NamedSet, why_no_download: str) -> MissingHereError:
    """The error for a missing dataset: where favor looked, and what to put there."""
    root = os.environ.get(ROOT_VARIABLE)
    looked = f"not in {root}" if root else f"${ROOT_VARIABLE}, the folder of datasets, is not set"
    return MissingHereError(
        f"dataset {known.name}: {looked}; put {known.how_to_get} there, or give its path as {known.name}:PATH "
        f"({why_no_download})"
    )
