"""The preprocessing of images: that of a recipe, or that of published weights."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from favor.data.augment import Augmentation, Normalization
from favor.data.framing import Color, CropMode, Framing, Interpolation
from favor.errors import RequestError, path_text
from favor.regular_file import read_regular
from favor.training.checkpoint import load_model_file
from favor.training.initial_weights import checkpoint_file, is_favors
from favor.training.recipe import Recipe, Triple
from favor.zoo.checkpoints import Checkpoint, checkpoints
from favor.zoo.registry import card

_LARGEST_CONFIG = 2**20  # bytes
_Share = Annotated[float, Field(ge=0.0, le=1.0)]
_PositiveShare = Annotated[float, Field(ge=1e-3, le=1.0)]


def framing_of(recipe: Recipe) -> Framing:
    """How images are cropped to squares."""
    return Framing(recipe.img_size, recipe.crop_padding, recipe.eval_crop_ratio, recipe.interpolation or "bicubic")


def augmentation_of(recipe: Recipe) -> Augmentation:
    """The augmentation of training images."""
    return Augmentation(
        flip=recipe.flip,
        grey=recipe.grey,
        solarize=recipe.solarize,
        blur=recipe.blur,
        color_jitter=recipe.color_jitter,
        cutmix=recipe.cutmix,
    )


def normalization_of(recipe: Recipe) -> Normalization:
    """The mean and standard deviation that images are normalized with."""
    return Normalization(recipe.mean, recipe.std)


def framing_for(checkpoint: Checkpoint, img_size: int | None = None) -> Framing:
    """How images are cropped for pretrained weights, at the weights' image size unless another is given.

    timm rounds the side before the crop down, so the ratio is that of whole pixels.

    >>> vit = Checkpoint("vit", "t", "", 224, (0, 0, 0), (1, 1, 1), 0.9, "bicubic", "center", 1000, None)
    >>> framing_for(vit).evaluation_side
    248
    """
    side = img_size or checkpoint.img_size
    mode, interpolation = checkpoint.crop_mode, checkpoint.interpolation
    if mode not in get_args(CropMode) or interpolation not in get_args(Interpolation):
        raise RequestError(
            f"{checkpoint.name} wants images resized as {mode}, {interpolation}; favor resizes as "
            f"{', '.join(get_args(CropMode))}, and {' or '.join(get_args(Interpolation))}"
        )
    resized_to = math.floor(side / checkpoint.crop_at(side))
    color = fill_of(checkpoint.mean)
    return Framing(side, 0, side / resized_to, interpolation, mode, color)  # type: ignore[arg-type] # checked above


def fill_of(mean: Triple) -> Color:
    """The color of borders: the mean that images are normalized with, as timm fills them."""
    red, green, blue = (round(255 * share) for share in mean)
    return red, green, blue


def normalization_for(checkpoint: Checkpoint) -> Normalization:
    """Mean and standard deviation that pretrained weights expect."""
    return Normalization(checkpoint.mean, checkpoint.std)


def recipe_keys_for(checkpoint: Checkpoint, img_size: int | None = None) -> list[str]:
    """The preprocessing of pretrained weights as `key=value` for a recipe."""
    return _keys(framing_for(checkpoint, img_size), normalization_for(checkpoint))


def recipe_keys_of(recipe: Recipe) -> list[str]:
    """The preprocessing that a model was trained with as `key=value` for the recipe of its fine-tuning."""
    return _keys(framing_of(recipe), normalization_of(recipe))


@dataclass(frozen=True)
class Carried:
    """Preprocessing that belongs to weights, as `key=value` for a recipe, and a note for the user."""

    keys: tuple[str, ...] = ()
    note: str | None = None


def carried_by(path: Path, model: str) -> Carried:
    """The preprocessing of the weights in a file, or in the folder of a run.

    A checkpoint of favor's holds it; weights from the Hugging Face Hub have a `config.json` beside them. Other weights
    in timm's layout are treated like the model's published ones, and a note says so.
    """
    file = checkpoint_file(path)
    if is_favors(file):
        return Carried(tuple(recipe_keys_of(load_model_file(file)[0].recipe)))
    beside = file.with_name("config.json")
    if beside.is_file():
        return Carried(tuple(recipe_keys_for(_configured(beside))), f"preprocessing from {beside}")
    published = checkpoints(card(model).name)
    if not published:
        return Carried()
    keys = tuple(recipe_keys_for(published[0]))
    return Carried(
        keys,
        f"{file.name} does not say how images are prepared; preparing them as for {published[0].name} "
        f"({', '.join(keys[-2:])}); to change it, use --set or put a config.json beside the file",
    )


def _configured(file: Path) -> Checkpoint:
    """Preprocessing in timm's `config.json`."""
    try:
        config = _TimmConfig.model_validate_json(read_regular(file, _LARGEST_CONFIG)).pretrained_cfg
    except ValidationError as error:
        first = error.errors()[0]
        where = path_text(first["loc"]) or "the file"
        raise RequestError(f"{file}: {where}: {first['msg']}; remove it, and use --set instead") from error
    return Checkpoint(
        *(file.parent.name, "", str(file), config.input_size[-1], config.mean, config.std, config.crop_pct),
        *(config.interpolation, config.crop_mode, config.num_classes, None),
    )


class _Preprocessing(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    input_size: tuple[int, int, Annotated[int, Field(ge=1, le=4096)]]
    mean: tuple[_Share, _Share, _Share]
    std: tuple[_PositiveShare, _PositiveShare, _PositiveShare]
    crop_pct: _PositiveShare
    interpolation: str
    crop_mode: str = "center"
    num_classes: int = 0


class _TimmConfig(BaseModel):
    model_config = ConfigDict(frozen=True)

    pretrained_cfg: _Preprocessing


def _keys(framing: Framing, normalization: Normalization) -> list[str]:
    return [
        f"img_size={framing.img_size}",
        f"eval_crop_ratio={framing.crop_ratio!r}",
        f"interpolation={framing.interpolation}",
        f"mean={list(normalization.mean)}",
        f"std={list(normalization.std)}",
    ]
