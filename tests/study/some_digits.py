"""Few images for training runs that only have to run: `setitem(opening.INSIDE_PACKAGE, "digits", some_digits)`."""

from favor.data.digits import open_digits
from favor.data.in_memory import InMemory
from favor.data.sources import Splits

IMAGES = 120


def some_digits() -> Splits:
    """The first digits of both splits."""
    whole = open_digits()
    some = (InMemory(part.images[:IMAGES], part.labels[:IMAGES]) for part in (whole.train, whole.evaluation))
    return Splits(whole.classes, *some)
