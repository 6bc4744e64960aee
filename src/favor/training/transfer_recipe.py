"""Batch size, epochs and warm-up of the recipe `transfer` for a number of training images. Imports no torch."""

from collections.abc import Iterable, Mapping

from favor.errors import RequestError, shown
from favor.training.recipe import load_recipe, parse_override

TRANSFER = "transfer"
LEAST_BATCH, BATCHES_PER_EPOCH = 8, 10
LEAST_EPOCHS, IMAGES_IN_ALL = 5, 20_000
WARMUP_SHARE = 0.1


def fitted_to(images: int, given: Iterable[str] = ()) -> list[str]:
    """The `key=value` overrides that fit `transfer` to so many training images; what is given stays as it is.

    >>> fitted_to(40), fitted_to(5000)
    (['batch_size=8', 'epochs=20', 'warmup_epochs=1'], ['batch_size=32', 'epochs=5', 'warmup_epochs=0.5'])
    >>> fitted_to(2, ["epochs=1"])
    ['batch_size=2', 'warmup_epochs=0', 'schedule=constant']
    """
    overrides = dict(parse_override(entry) for entry in given)
    recipe = load_recipe(TRANSFER)
    wanted = min(recipe.batch_size, max(LEAST_BATCH, images // BATCHES_PER_EPOCH))
    # Batches of one size, so that hardly an image is left out of an epoch.
    batch_size = _count(overrides, "batch_size", images // max(1, images // wanted))
    epochs = _count(overrides, "epochs", min(recipe.epochs, max(LEAST_EPOCHS, IMAGES_IN_ALL // images)))
    steps = epochs * (images // batch_size)
    warmup = min(recipe.warmup_epochs, WARMUP_SHARE * epochs) if steps >= 1 / WARMUP_SHARE else 0
    fit: dict[str, object] = {"batch_size": batch_size, "epochs": epochs, "warmup_epochs": f"{warmup:g}"}
    if steps == 1:
        fit["schedule"] = "constant"  # a single step has no room for a peak and a minimum
    return [f"{key}={value}" for key, value in fit.items() if key not in overrides]


def _count(overrides: Mapping[str, object], key: str, fitted: int) -> int:
    """The override of a key, checked before anything is computed from it; without one, the fitted value."""
    value = overrides.get(key, fitted)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RequestError(f"--set {key}: must be an integer of at least 1, not {shown(value)}")
    return value
