"""`data.json` in a run's folder: where the images of a training run are, and which of them are for evaluation.

It is a separate file, so that a model file that is given away does not reveal its owner's folders.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from favor.atomic_file import write_whole
from favor.data.archive import is_archive, unpacked
from favor.data.folder import open_with_evaluation
from favor.data.image_files import FolderPlaces, ImageFiles
from favor.data.names import parse
from favor.data.opening import open_data
from favor.data.sources import DataSet, ImageSource
from favor.errors import RequestError, path_text
from favor.regular_file import read_regular

FILE = "data.json"
_LARGEST = 2**28  # bytes: a million paths


class RunData(BaseModel):
    """The dataset as `NAME[:PATH]`, and a hash of the names of its images.

    `evaluation` are the evaluation images of a folder that favor has split, as paths below it; None for other sets.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str
    images: str
    evaluation: tuple[str, ...] | None = None


def save_run_data(folder: Path, text: str, data: DataSet) -> None:
    """Write the file of a run that is trained on `text`, which is `data`."""
    folder.mkdir(parents=True, exist_ok=True)
    request = parse(text)
    absolute = text if request.path is None else f"{request.known.name}:{request.path.resolve()}"
    write_whole(folder / FILE, _described(absolute, data).model_dump_json().encode())


def read_run_data(folder: Path) -> RunData | None:
    """What the file of a run says; None if there is none."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        return RunData.model_validate_json(read_regular(file, _LARGEST))
    except ValidationError as error:
        first = error.errors()[0]
        raise RequestError(
            f"{file}: {path_text(first['loc']) or 'the file'}: {first['msg']}; name the images with --data NAME[:PATH]"
        ) from error


def open_run_data(kept: RunData, classes: tuple[str, ...]) -> DataSet:
    """The dataset of a run with the run's own evaluation images."""
    if kept.evaluation is None:
        return open_data(kept.data)
    request = parse(kept.data)
    place = request.path if _is_there(kept) else None
    if place is None or not (place.is_dir() or is_archive(place)):
        raise RequestError(f"{kept.data}: the images of this run are not there; name them with --data folder:PATH")
    root = unpacked(place) if is_archive(place) else place
    splits = open_with_evaluation(root, classes, kept.evaluation)
    return DataSet(request.known.name, classes, splits.train, splits.evaluation, str(place))


def moved_to(text: str, found: DataSet, kept: RunData) -> RunData | None:
    """The data of a run whose images were moved to `text`, where `found` are all images; None if they were not."""
    names = _names(found.evaluation)
    if kept.evaluation is None or names is None or _is_there(kept):
        return None
    held_out = set(kept.evaluation)
    in_order = sorted(names, key=lambda name: name in held_out)  # the training images come first
    if _digest_of(in_order) != kept.images:
        return None
    request = parse(text)
    return kept.model_copy(update={"data": f"{request.known.name}:{request.path}"})


def has_changed(kept: RunData) -> bool:
    """Whether images were added, removed or renamed since the training."""
    return _digest(open_data(kept.data)) != kept.images


def has_other_images(kept: RunData, data: DataSet) -> bool:
    """Whether the files of `data` are not those of the run; datasets without files are compared by their size only."""
    names = [_names(source) for source in (data.train, data.evaluation)]
    return None not in names and kept.images not in (_digest(data), _digest(data, by_name=False))


def _described(text: str, data: DataSet) -> RunData:
    evaluation = _names(data.evaluation) if _is_split_by_favor(data) else None
    return RunData(data=text, images=_digest(data), evaluation=None if evaluation is None else tuple(evaluation))


def _digest(data: DataSet, by_name: bool = True) -> str:
    """A hash of the images' names, or of their number if they have no names."""
    named: list[str] = []
    for source in (data.train, data.evaluation):
        named += (_names(source) if by_name else None) or [str(len(source))]
    return _digest_of(named)


def _digest_of(names: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode(errors="surrogateescape") + b"\0")
    return digest.hexdigest()


def _is_there(kept: RunData) -> bool:
    """Whether the folder or archive of a run's images exists."""
    path = parse(kept.data).path
    return path is not None and os.path.exists(path)  # noqa: PTH110 - Path.exists raises on names that are too long


def _names(source: ImageSource) -> list[str] | None:
    """The paths of a split's images below its folder; None if they are not files."""
    places = source.places if isinstance(source, ImageFiles) else None
    return places.relative if isinstance(places, FolderPlaces) else None


def _is_split_by_favor(data: DataSet) -> bool:
    """Whether training and evaluation images are below the same folders, without one for each."""
    roots = [
        source.places.root
        for source in (data.train, data.evaluation)
        if isinstance(source, ImageFiles) and isinstance(source.places, FolderPlaces)
    ]
    return data.name == "folder" and len(roots) == 2 and roots[0] == roots[1]
