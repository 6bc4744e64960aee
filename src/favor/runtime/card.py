"""The card beside an exported file: its inputs and outputs, where the model is from, and how it was tested."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from favor.errors import RequestError, path_text
from favor.regular_file import read_regular, sha256_of
from favor.runtime.exported import files_of
from favor.runtime.session import Shapes
from favor.text import require_printable

_LARGEST_CARD = 10_000_000  # bytes: the names of ten thousand classes are a few hundred thousand
_STRICT = ConfigDict(frozen=True, extra="forbid")
Finite = Annotated[float, Field(allow_inf_nan=False)]
# Wider than any normalization of values from 0 to 1, and still finite in float32.
Mean = Annotated[float, Field(ge=-1e3, le=1e3, allow_inf_nan=False)]
Deviation = Annotated[float, Field(ge=1e-3, le=1e3, allow_inf_nan=False)]
_Name = Annotated[str, AfterValidator(require_printable)]


class SelfTest(BaseModel):
    """The outputs of the file against eager mode; top-1 in %, its change in percentage points."""

    model_config = _STRICT

    data: str
    images: int
    largest_deviation: Finite
    relative_deviation: Finite
    top1_agreement: Finite
    top1: Finite | None = None
    top1_change: Finite | None = None
    top1_change_low: Finite | None = None
    top1_change_high: Finite | None = None


class ExportCard(BaseModel):
    """All that is needed to use an exported file. `classes` is empty if the classes have no names.

    `class_names` are the classes in words, if they differ from their names; `epochs` is None for published weights.
    """

    model_config = _STRICT

    favor: str
    sha256: dict[str, str]
    format: Literal["onnx", "openvino", "torch-export"]
    precision: Literal["fp32", "fp16", "int8"]
    dynamic_batch: bool
    model: str
    img_size: int = Field(ge=1, le=4096)
    in_chans: int = Field(ge=1, le=1024)
    mean: tuple[Mean, Mean, Mean]
    std: tuple[Deviation, Deviation, Deviation]
    crop_ratio: float = Field(gt=0.0, le=1.0)
    interpolation: Literal["bicubic", "bilinear"] = Field(default="bicubic", description="missing in older cards")
    crop_mode: Literal["center", "squash", "border"] = Field(default="center", description="missing in older cards")
    num_classes: int = Field(ge=1, le=1_000_000)
    classes: tuple[_Name, ...]
    class_names: tuple[_Name, ...] = Field(default=(), description="missing in older cards")
    dataset: str | None
    epochs: float | None
    source: str
    calibration: str | None
    versions: dict[str, str]
    self_test: SelfTest


def card_file(file: Path) -> Path:
    """Where the card of an exported file is.

    >>> card_file(Path("model.onnx")).name
    'model.onnx.json'
    """
    return file.with_name(f"{file.name}.json")


def read_card(file: Path) -> ExportCard:
    """The card of an exported file, which must be that of this very file."""
    beside = card_file(file)
    if not file.is_file():
        raise RequestError(f"{file}: there is no such file; `favor export` makes one")
    if not beside.is_file():
        raise RequestError(f"{file}: its card {beside.name} is not beside it; only files of `favor export` can be used")
    try:
        card = ExportCard.model_validate_json(read_regular(beside, _LARGEST_CARD))
    except ValidationError as error:
        first = error.errors()[0]
        where = path_text(first["loc"]) or "the file"
        raise RequestError(f"{beside}: {where}: {first['msg']}; export the model again") from error
    if _by_ending(card.sha256) != _by_ending(checksums(file)):
        raise RequestError(f"{file}: not the file that {beside.name} was written for; export the model again")
    wrong = next((names for names in (card.classes, card.class_names) if len(names) not in (0, card.num_classes)), None)
    if wrong is not None:
        named = f"but it names {len(wrong)} classes"
        raise RequestError(f"{beside}: num_classes is {card.num_classes}, {named}; export the model again")
    return card


def require_fitting(card: ExportCard, file: Path, form: str, shapes: Shapes) -> None:
    """Refuse a card that contradicts its file; a size that the file leaves open contradicts only a fixed batch size."""
    if card.format != form:
        raise RequestError(f"{file}: a file for {form}, but its card says {card.format}; export the model again")
    images = (None if card.dynamic_batch else 1, card.in_chans, card.img_size, card.img_size)
    has_open_batch = shapes.images[:1] == (None,)
    if shapes.images and (has_open_batch != card.dynamic_batch or not _agree(shapes.images, images)):
        taken, said = _shape_text(shapes.images), _shape_text(images)
        raise RequestError(f"{file}: takes images of shape {taken}, but its card says {said}; export the model again")
    if len(shapes.outputs) == 2 and not _agree(shapes.outputs, (None, card.num_classes)):
        raise RequestError(
            f"{file}: has {shapes.outputs[1]} outputs, but its card says {card.num_classes} classes; "
            "export the model again"
        )


def _agree(shape: Sequence[int | None], other: Sequence[int | None]) -> bool:
    """Whether two shapes can be the same; None is any size."""
    if len(shape) != len(other):
        return False
    return all(None in sizes or sizes[0] == sizes[1] for sizes in zip(shape, other, strict=True))


def _shape_text(shape: Sequence[int | None]) -> str:
    return " x ".join("any" if size is None else str(size) for size in shape)


def _by_ending(sums: Mapping[str, str]) -> dict[str, str]:
    """The checksums without the rest of the names: a file may be renamed together with its card."""
    return {Path(name).suffix: digest for name, digest in sums.items()}


def checksums(file: Path) -> dict[str, str]:
    """The SHA-256 of each file of an exported model, by its name."""
    for part in files_of(file):
        if not part.is_file():
            raise RequestError(f"{file}: {part.name} is not beside it; export the model again")
    return {part.name: sha256_of(part) for part in files_of(file)}
