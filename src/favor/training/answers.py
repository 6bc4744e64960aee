"""The predictions of a trained model for each evaluation image, and its worst mistakes as pictures."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from favor.data.broken import BrokenImages
from favor.data.decoding import thumbnail
from favor.data.image_files import ImageFiles
from favor.data.loader import EvaluationLoader
from favor.data.sources import DataSet
from favor.training.predict import Classifier

SHOWN = 24
BATCH = 16


@dataclass(frozen=True)
class Answer:
    """The index of an evaluation image, its class and the predicted class (as indices), and the probability."""

    sample: int
    label: int
    predicted: int
    probability: float


def answers_of(
    trained: Classifier, data: DataSet, workers: int, broken: BrokenImages, at: Callable[[int], None]
) -> list[Answer]:
    """The predictions for all evaluation images that can be read; `at` gets the number of images done."""
    loader = EvaluationLoader(
        data.evaluation,
        BATCH,
        trained.framing,
        trained.normalization,
        broken=broken,
        workers=workers,
        device=trained.device,
    )
    answers: list[Answer] = []
    with torch.inference_mode():
        for batch in loader:
            surest = trained.run(batch.images).softmax(1).max(1)
            columns = (batch.samples.tolist(), batch.labels.tolist(), surest.indices.tolist(), surest.values.tolist())
            answers += [Answer(*row) for row in zip(*columns, strict=True)]
            at(len(answers))
    return answers


def worst(answers: list[Answer]) -> list[Answer]:
    """The most confident mistakes; if there are none, the least confident correct predictions."""
    wrong = sorted((one for one in answers if one.predicted != one.label), key=lambda one: -one.probability)
    return (wrong or sorted(answers, key=lambda one: one.probability)[: SHOWN // 3])[:SHOWN]


def picture(data: DataSet, sample: int) -> tuple[str, bytes]:
    """The path of an evaluation image below the data's folder, and the image as a small JPEG."""
    files = data.evaluation
    assert isinstance(files, ImageFiles)  # noqa: S101 - folders and shards hold files
    return files.places.name(sample).removeprefix(f"{data.place}/"), thumbnail(files.places.read(sample))
