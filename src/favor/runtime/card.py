"""The card beside an exported file: what gets in, what comes out, where it is from, and how it was tested."""

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from favor.errors import RequestError, path_text
from favor.regular_file import open_regular, read_regular
from favor.runtime.exported import files_of
from favor.text import require_printable

_LARGEST_CARD = 10_000_000  # bytes: the names of ten thousand classes are a few hundred thousand
_STRICT = ConfigDict(frozen=True, extra="forbid")
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Triple = tuple[Finite, Finite, Finite]


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
    """All that is needed to use an exported file. `classes` is empty where nobody has named them."""

    model_config = _STRICT

    favor: str
    sha256: dict[str, str]
    format: Literal["onnx", "openvino", "torch-export"]
    precision: Literal["fp32", "fp16", "int8"]
    dynamic_batch: bool
    model: str
    img_size: int = Field(ge=1, le=4096)
    in_chans: int = Field(ge=1, le=1024)
    mean: Triple
    std: tuple[Positive, Positive, Positive]
    crop_ratio: float = Field(gt=0.0, le=1.0)
    interpolation: Literal["bicubic", "bilinear"] = Field(default="bicubic", description="missing in older cards")
    num_classes: int = Field(ge=1, le=1_000_000)
    classes: tuple[Annotated[str, AfterValidator(require_printable)], ...]
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
    if card.sha256 != checksums(file):
        raise RequestError(f"{file}: not the file that {beside.name} was written for; export the model again")
    return card


def checksums(file: Path) -> dict[str, str]:
    """The SHA-256 of each file of an exported model, by its name."""
    for part in files_of(file):
        if not part.is_file():
            raise RequestError(f"{file}: {part.name} is not beside it; export the model again")
    return {part.name: _sha256(part) for part in files_of(file)}


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with open_regular(file) as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
