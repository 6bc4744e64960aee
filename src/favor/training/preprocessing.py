"""The data loader settings of a recipe."""

import math

from favor.data.augment import Augmentation, Normalization
from favor.data.framing import Framing
from favor.errors import RequestError
from favor.training.recipe import Recipe
from favor.zoo.checkpoints import Checkpoint


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
    """How images are cut for pretrained weights, at their own size unless another is given.

    timm rounds the side before the crop down, so the ratio is that of whole pixels.

    >>> vit = Checkpoint("vit", "t", "", 224, (0, 0, 0), (1, 1, 1), 0.9, "bicubic", "center", 1000, None)
    >>> framing_for(vit).evaluation_side
    248
    """
    side = img_size or checkpoint.img_size
    if checkpoint.crop_mode != "center" or checkpoint.interpolation not in ("bicubic", "bilinear"):
        raise RequestError(
            f"{checkpoint.name} wants images resized as {checkpoint.crop_mode}, {checkpoint.interpolation}; favor "
            "cuts the center after bicubic or bilinear resizing"
        )
    resized_to = math.floor(side / checkpoint.crop_ratio)
    return Framing(side, 0, side / resized_to, checkpoint.interpolation)  # type: ignore[arg-type] # checked above


def normalization_for(checkpoint: Checkpoint) -> Normalization:
    """Mean and standard deviation that pretrained weights expect."""
    return Normalization(checkpoint.mean, checkpoint.std)


def recipe_keys_for(checkpoint: Checkpoint, img_size: int | None = None) -> list[str]:
    """The preprocessing of pretrained weights as `key=value` for a recipe."""
    framing = framing_for(checkpoint, img_size)
    return [
        f"img_size={framing.img_size}",
        f"eval_crop_ratio={framing.crop_ratio!r}",
        f"interpolation={framing.interpolation}",
        f"mean={list(checkpoint.mean)}",
        f"std={list(checkpoint.std)}",
    ]
