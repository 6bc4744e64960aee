"""The data loader settings of a recipe."""

from favor.data.augment import Augmentation, Normalization
from favor.data.framing import Framing
from favor.training.recipe import Recipe


def framing_of(recipe: Recipe) -> Framing:
    """How images are cropped to squares."""
    return Framing(recipe.img_size, recipe.crop_padding, recipe.eval_crop_ratio)


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
