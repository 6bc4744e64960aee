"""How a recipe's numbers become what the loaders take."""

from favor.data.augment import Augmentation, Normalization
from favor.data.framing import Framing
from favor.training.recipe import Recipe


def framing_of(recipe: Recipe) -> Framing:
    """How squares are cut out of images."""
    return Framing(recipe.img_size, recipe.crop_padding, recipe.eval_crop_ratio)


def augmentation_of(recipe: Recipe) -> Augmentation:
    """What is done to training images."""
    return Augmentation(
        flip=recipe.flip,
        grey=recipe.grey,
        solarize=recipe.solarize,
        blur=recipe.blur,
        color_jitter=recipe.color_jitter,
        cutmix=recipe.cutmix,
    )


def normalization_of(recipe: Recipe) -> Normalization:
    """Mean and standard deviation that images are brought to."""
    return Normalization(recipe.mean, recipe.std)
