"""The conditions that every pass has, whoever counts, measures, trains or simulates it. Imports no torch."""

from typing import Literal

from favor.errors import RequestError, unknown_name

Phase = Literal["inference", "training"]

PHASES: tuple[Phase, ...] = ("inference", "training")
OPTIMIZERS = ("lamb", "adamw", "adam", "sgd")

REFERENCE_BATCH = 2048
IMAGENET_IMAGES = 1_281_167
MOST_IMAGES = 2**31 - 1
"""A larger batch is a typing error: it would overflow the sizes of tensors before it exhausts the memory."""


def phase_named(word: str) -> Phase:
    """The one phase that a word names."""
    for phase in PHASES:
        if word == phase:
            return phase
    raise unknown_name("phase", word, PHASES, "choose from " + ", ".join(PHASES))


def phases_named(word: str) -> tuple[Phase, ...]:
    """The phases that `inference`, `training` or `both` stands for.

    >>> phases_named("both")
    ('inference', 'training')
    """
    chosen: dict[str, tuple[Phase, ...]] = {**{phase: (phase,) for phase in PHASES}, "both": PHASES}
    if word not in chosen:
        raise unknown_name("phase", word, chosen, "choose from " + ", ".join(chosen))
    return chosen[word]


def check_counts(*counts: tuple[str, int | None]) -> None:
    """Refuse a count below 1; None means not given."""
    for what, count in counts:
        if count is not None and count < 1:
            raise RequestError(f"the {what} must be 1 or more, not {count}")


def check_batch_size(batch_size: int | None) -> None:
    """Refuse a batch size that no batch can have."""
    check_counts(("batch size", batch_size))
    if batch_size is not None and batch_size > MOST_IMAGES:
        raise RequestError(f"the batch size must be {MOST_IMAGES} or less, not {batch_size}")
