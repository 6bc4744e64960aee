"""Tiny ImageNet as distributed: 200 classes at 64x64, validation images in one folder with a list of their classes."""

from pathlib import Path

from favor.data.broken import BrokenImages
from favor.data.class_folders import class_folders
from favor.data.folder import image_list, images_by_class
from favor.data.image_files import decode_all
from favor.data.sources import Splits
from favor.errors import RequestError, shown
from favor.regular_file import read_text

_SIDE = 64
_MOST_BYTES = 2**24  # words.txt has 3 MB


def open_tiny_imagenet(root: Path) -> Splits:
    """Tiny ImageNet, decoded in memory; the validation images may already be sorted into class folders."""
    if not (root / "train").is_dir() or not (root / "val").is_dir():
        raise RequestError(f"{root}: it lacks the train/ and val/ of tiny-imagenet-200.zip; download the whole set")
    classes = class_folders(root / "train")
    annotations = root / "val" / "val_annotations.txt"
    if (root / "val" / "images").is_dir():
        evaluation = image_list(root / "val" / "images", *_annotated(annotations, classes))
    else:
        evaluation = images_by_class(root / "val", classes)
    broken = BrokenImages()
    decoded = []
    for files in (images_by_class(root / "train", classes), evaluation):
        images, found = decode_all(files, _SIDE)
        broken.add(found)
        decoded.append(images)
    return Splits(_readable(root / "words.txt", classes), *decoded)


def _annotated(annotations: Path, classes: tuple[str, ...]) -> tuple[list[str], list[int]]:
    """File names and labels from lines of `NAME<tab>WNID<tab>a box`."""
    if not annotations.exists():
        raise RequestError(f"{annotations}: this file with the classes of val/images is missing; download it again")
    label_of = {wnid: label for label, wnid in enumerate(classes)}
    names, labels = [], []
    for number, line in enumerate(read_text(annotations, _MOST_BYTES).splitlines(), start=1):
        fields = line.split("\t")
        if len(fields) < 2 or fields[1] not in label_of:
            raise RequestError(
                f"{annotations}:{number}: not a file name and one of the {len(classes)} classes: {shown(line)}"
            )
        names.append(fields[0])
        labels.append(label_of[fields[1]])
    return names, labels


def _readable(words: Path, classes: tuple[str, ...]) -> tuple[str, ...]:
    """The classes in words if `words.txt` exists; `n01443537` is a goldfish."""
    if not words.exists():
        return classes
    words_of = dict(line.split("\t", 1) for line in read_text(words, _MOST_BYTES).splitlines() if "\t" in line)
    named = tuple(words_of.get(wnid, wnid) for wnid in classes)
    for name in named:
        if not name.isprintable():
            raise RequestError(f"{words}: {shown(name)} is not a valid class name; download it again")
    return named
