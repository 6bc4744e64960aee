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
        labels = _matlab(root / "imagelabels.mat")["labels"].ravel().astype(np.int64) - 1
        splits = _matlab(root / "setid.mat")
        train = np.concatenate([splits["trnid"].ravel(), splits["valid"].ravel()])
        classes = tuple(str(number) for number in range(1, FLOWER_CLASSES + 1))
        return Splits(classes, *(_flowers(root, part, labels) for part in (train, splits["tstid"].ravel())))
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
    names = tuple(str(name.item()) for name in _matlab(devkit / "cars_meta.mat")["class_names"].ravel())
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
    train = _cars(root / "cars_train", devkit / "cars_train_annos.mat")
    return Splits(names, train, _cars(root / "cars_test", with_labels))


def _flowers(root: Path, numbers: np.ndarray, labels: np.ndarray) -> ImageFiles:
    files = [f"image_{int(number):05d}.jpg" for number in numbers]
    return image_list(root / "jpg", files, [int(labels[int(number) - 1]) for number in numbers])


def _cars(folder: Path, annotations: Path) -> ImageFiles:
    rows = _matlab(annotations)["annotations"].ravel()
    return image_list(
        folder, [str(row["fname"].item()) for row in rows], [int(row["class"].item()) - 1 for row in rows]
    )


def _both(root: Path, first: ImageFiles, second: ImageFiles) -> ImageFiles:
    """Two parts as one."""
    files = [
        str(Path(part.places.name(sample)).relative_to(root)) for part in (first, second) for sample in range(len(part))
    ]
    return ImageFiles(FolderPlaces(root, files), np.concatenate([first.labels, second.labels]))


def _matlab(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        return loadmat(path)
    except FileNotFoundError:
        raise RequestError(f"{path}: missing; get the whole set") from None
    except (MatReadError, ValueError, TypeError, NotImplementedError) as error:
        raise RequestError(f"{path}: not a file of MATLAB 5 ({error}); get it again") from error
