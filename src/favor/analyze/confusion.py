"""Which classes a model takes for which, and how sure its accuracy is."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from favor.analyze.intervals import accuracy_interval


@dataclass(frozen=True)
class Confusion:
    """How many images of each class got each answer: `counts[true][predicted]`.

    `accuracy` is in %, with its 95 % Wilson interval. `mistakes` are (true, predicted, images), most frequent first.
    """

    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    accuracy: float
    low: float
    high: float

    @property
    def images(self) -> int:
        return sum(map(sum, self.counts))

    @property
    def mistakes(self) -> tuple[tuple[str, str, int], ...]:
        pairs = [
            (self.classes[true], self.classes[predicted], count)
            for true, row in enumerate(self.counts)
            for predicted, count in enumerate(row)
            if count and predicted != true
        ]
        return tuple(sorted(pairs, key=lambda mistake: -mistake[2]))


def confusion_of(classes: Sequence[str], labels: Sequence[int], predicted: Sequence[int]) -> Confusion:
    """The confusion of predicted classes with the true ones, by their numbers.

    >>> found = confusion_of(("cat", "dog"), [0, 0, 1, 1], [0, 1, 1, 1])
    >>> found.counts, found.accuracy, found.mistakes
    (((1, 1), (0, 2)), 75.0, (('cat', 'dog', 1),))
    """
    pairs = Counter(zip(labels, predicted, strict=True))
    numbers = range(len(classes))
    accuracy = 100.0 * sum(pairs[number, number] for number in numbers) / len(labels)
    counts = tuple(tuple(pairs[true, guess] for guess in numbers) for true in numbers)
    return Confusion(tuple(classes), counts, accuracy, *accuracy_interval(accuracy, len(labels)))
