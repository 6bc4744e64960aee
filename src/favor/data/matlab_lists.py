"""Sets whose image lists are MATLAB files: Oxford Flowers 102 and Stanford Cars."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from favor.data.class_folders import class_folders
from favor.data.folder import image_list, images_by_class, open_folder
from favor.data.image_files import FolderPlaces, ImageFiles
from favor.data.matlab_file import read_matlab
from favor.data.sources import Splits
from favor.errors import RequestError, shown

FLOWER_CLASSES = 102


def open_flowers102(root: Path) -> Splits:
    """Trained on the official training and validation images (2,040), evaluated on the test images (6,149).

    That is how transfer results are reported, by DeiT among others. Layouts: `jpg/` with `imagelabels.mat` and
    `setid.mat` as distributed, or folders of classes below `train`, `val` and `test`.
    """
    if (root / "jpg").is_dir():
        labels = _integers(root / "imagelabels.mat", "labels") - 1
        first, second, test = (_integers(root / "setid.mat", key) for key in ("trnid", "valid", "tstid"))
        classes = tuple(str(number) for number in range(1, FLOWER_CLASSES + 1))
        return Splits(classes, *(_flowers(root, part, labels) for part in (np.concatenate([first, second]), test)))
    if not all((root / name).is_dir() for name in ("train", "val", "test")):
        raise RequestError(f"{root}: neither jpg/ with imagelabels.mat and setid.mat nor train/, val/ and test/")
    classes = class_folders(root / "train")
    parts = [images_by_class(root / name, classes) for name in ("train", "val")]
    return Splits(classes, _both(root, parts[0], parts[1]), images_by_class(root / "test", classes))


def open_cars(root: Path) -> Splits:
    """Stanford Cars: the lists of its devkit with `cars_train/` and `cars_test/`, or folders of classes."""
    devkit = root / "devkit"
    if not devkit.is_dir():
        return open_folder(root)
    names = _class_names(devkit / "cars_meta.mat")
    with_labels = next(
        (
            path
            for path in (root / "cars_test_annos_withlabels.mat", devkit / "cars_test_annos_withlabels.mat")
            if path.is_file()
        ),
        None,
    )
    if with_labels is None:
        raise RequestError(
            f"{root}: no cars_test_annos_withlabels.mat, which holds the labels of the test images; add it"
        )
    train = _cars(root / "cars_train", devkit / "cars_train_annos.mat", len(names))
    return Splits(names, train, _cars(root / "cars_test", with_labels, len(names)))


def _flowers(root: Path, numbers: np.ndarray, labels: np.ndarray) -> ImageFiles:
    places = numbers - 1
    if not _within(places, len(labels)):
        raise RequestError(
            f"{root / 'setid.mat'}: refers to images that imagelabels.mat does not list; download both again"
        )
    if not _within(labels, FLOWER_CLASSES):
        raise RequestError(f"{root / 'imagelabels.mat'}: a class is outside 1 to {FLOWER_CLASSES}; download it again")
    files = [f"image_{place + 1:05d}.jpg" for place in places]
    return image_list(root / "jpg", files, labels[places].tolist())


def _cars(folder: Path, annotations: Path, classes: int) -> ImageFiles:
    files, labels = [], []
    for row in read_matlab(annotations, "annotations").structs or ():
        file, label = row.get("fname"), row.get("class")
        if file is None or not file.text or label is None or label.numbers is None or label.numbers.shape != (1,):
            raise RequestError(f"{annotations}: not a list of fname and class; download it again")
        files.append(file.text)
        labels.append(_whole(label.numbers, annotations, "class") - 1)
    if not files:
        raise RequestError(f"{annotations}: not a list of fname and class; download it again")
    numbers = np.concatenate(labels)
    if not _within(numbers, classes):
        raise RequestError(f"{annotations}: a class is outside 1 to {classes}; download it again")
    return image_list(folder, files, numbers.tolist())


def _class_names(path: Path) -> tuple[str, ...]:
    names = tuple(cell.text or "" for cell in read_matlab(path, "class_names").cells or ())
    for name in names:
        if not name or not name.isprintable():
            raise RequestError(f"{path}: {shown(name)} is not a valid class name; download it again")
    return names


def _integers(path: Path, key: str) -> NDArray[np.int64]:
    """The list of integers of this name."""
    numbers = read_matlab(path, key).numbers
    if numbers is None:
        raise RequestError(f"{path}: {key!r} is not a list of numbers; download it again")
    return _whole(numbers, path, key)


def _whole(numbers: NDArray[np.generic], path: Path, key: str) -> NDArray[np.int64]:
    """Numbers as integers, which MATLAB often stores as floats."""
    exact = numbers.astype(np.float64)
    if not (np.isfinite(exact) & (np.abs(exact) < 2**53) & (exact == np.round(exact))).all():
        raise RequestError(f"{path}: {key!r} has numbers that are not integers; download it again")
    return exact.astype(np.int64)


def _within(numbers: np.ndarray, count: int) -> bool:
    """Whether all numbers are from 0 to below `count`."""
    return bool(((numbers >= 0) & (numbers < count)).all())


def _both(root: Path, first: ImageFiles, second: ImageFiles) -> ImageFiles:
    """Two parts as one."""
    files = [
        str(Path(part.places.name(sample)).relative_to(root)) for part in (first, second) for sample in range(len(part))
    ]
    return ImageFiles(FolderPlaces(root, files), np.concatenate([first.labels, second.labels]))
