"""Sets whose authors list images and classes in files of MATLAB: Oxford Flowers 102 and Stanford Cars.

scipy reads these files as plain data (version 5 of the format).
"""

from pathlib import Path
from typing import Any

import numpy as np

from favor.data.folder import class_folders, image_list, images_by_class, open_folder
from favor.data.image_files import FolderPlaces, ImageFiles
from favor.data.sources import Splits
from favor.errors import RequestError

FLOWER_CLASSES = 102


def open_flowers102(root: Path) -> Splits:
    """Trained on the official training and validation images (2,040), evaluated on the test images (6,149).

    That is how transfer results are reported, by DeiT among others. Layouts: `jpg/` with `imagelabels.mat` and
    `setid.mat` as distributed, or folders of classes below `train`, `val` and `test`.
    """
    if (root / "jpg").is_dir():
        labels = _listed(root / "imagelabels.mat", "labels").astype(np.int64) - 1
        first, second, test = (_listed(root / "setid.mat", key) for key in ("trnid", "valid", "tstid"))
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
    names = tuple(str(name.item()) for name in _listed(devkit / "cars_meta.mat", "class_names"))
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
            f"{root}: no cars_test_annos_withlabels.mat, without which test images have no label; add it"
        )
    train = _cars(root / "cars_train", devkit / "cars_train_annos.mat", len(names))
    return Splits(names, train, _cars(root / "cars_test", with_labels, len(names)))


def _flowers(root: Path, numbers: np.ndarray, labels: np.ndarray) -> ImageFiles:
    places = numbers.astype(np.int64) - 1
    if not _within(places, len(labels)):
        raise RequestError(f"{root / 'setid.mat'}: numbers images that imagelabels.mat does not list; get both again")
    if not _within(labels, FLOWER_CLASSES):
        raise RequestError(f"{root / 'imagelabels.mat'}: a class is not from 1 to {FLOWER_CLASSES}; get it again")
    files = [f"image_{place + 1:05d}.jpg" for place in places]
    return image_list(root / "jpg", files, labels[places].tolist())


def _cars(folder: Path, annotations: Path, classes: int) -> ImageFiles:
    rows = _listed(annotations, "annotations")
    try:
        files = [str(row["fname"].item()) for row in rows]
        labels = [int(row["class"].item()) - 1 for row in rows]
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise RequestError(f"{annotations}: not a list of fname and class ({error}); get it again") from error
    if not _within(np.array(labels), classes):
        raise RequestError(f"{annotations}: a class is not from 1 to {classes}; get it again")
    return image_list(folder, files, labels)


def _within(numbers: np.ndarray, count: int) -> bool:
    """Whether all numbers are from 0 to below `count`."""
    return bool(((numbers >= 0) & (numbers < count)).all())


def _both(root: Path, first: ImageFiles, second: ImageFiles) -> ImageFiles:
    """Two parts as one."""
    files = [
        str(Path(part.places.name(sample)).relative_to(root)) for part in (first, second) for sample in range(len(part))
    ]
    return ImageFiles(FolderPlaces(root, files), np.concatenate([first.labels, second.labels]))


def _listed(path: Path, key: str) -> np.ndarray:
    """A list by its name in a file of MATLAB."""
    content = _matlab(path)
    if key not in content:
        raise RequestError(f"{path}: has no {key!r}; get it again")
    return content[key].ravel()


def _matlab(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        return loadmat(path)
    except FileNotFoundError:
        raise RequestError(f"{path}: missing; get the whole set") from None
    except (MatReadError, ValueError, TypeError, NotImplementedError) as error:
        raise RequestError(f"{path}: not a file of MATLAB 5 ({error}); get it again") from error
