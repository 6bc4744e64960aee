"""Trainings as jobs of a study: the request to the worker, and the records that belong to it. Imports no torch."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from favor.data.names import SETS, parse
from favor.errors import WorkError
from favor.records.schema import Record, Scalar
from favor.study.resolved import FirstWeights
from favor.study.schema import Stage, Train
from favor.training.recipe import Recipe, load_recipe
from favor.training.request import TrainingRequest

UNKNOWN_SET_IMAGES = 50_000
FRESH = FirstWeights()


@dataclass(frozen=True)
class TrainJob:
    """Train a model with one seed and recipe on a data set, and fine-tune it if the study says so."""

    name: str
    seed: int
    train: Train
    device: str
    threads: int
    plugins: tuple[str, ...]
    first_weights: FirstWeights = FRESH
    attention: str = "fused"

    phase = "accuracy"
    budget = 0.0

    def __str__(self) -> str:
        return f"{self.name} accuracy seed {self.seed}"

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The trainings, each from the weights of the one before."""
        return (self.train, *([self.train.finetune] if self.train.finetune else []))


def final_record(job: TrainJob, stage: Stage, records: Iterable[Record]) -> Record | None:
    """The record of the last epoch of a stage; None if the stage is not done."""
    ended = [
        record
        for record in records
        if is_of(job, stage, record) and record.status == "ok" and record.conditions.get("final") is True
    ]
    return ended[-1] if ended else None


def is_of(job: TrainJob, stage: Stage, record: Record) -> bool:
    """Whether a record belongs to a stage of the job: same recipe, data set and initial weights."""
    if (record.name, record.task) != (job.name, job.phase):
        return False
    conditions = record.conditions
    if conditions.get("attention", "fused") != job.attention:
        return False
    if stage is job.train:
        first = FirstWeights(
            pretraining=str(conditions.get("pretraining", "none")),
            img_size=conditions.get("pretraining_img_size"),  # type: ignore[arg-type]
        )
        if first != job.first_weights:
            return False
    # The name of a subset is followed by its size in brackets.
    dataset = str(conditions.get("dataset", "")).partition("[")[0]
    expected = stage_conditions(stage, job.seed)
    return dataset == dataset_of(stage) and all(conditions.get(key) == value for key, value in expected.items())


def stage_conditions(stage: Stage, seed: int) -> dict[str, Scalar]:
    """The conditions of a stage's records: the recipe, and when training ends."""
    recipe = {key: value for key, value in recipe_of(stage, seed).flat().items() if key != "recipe.data"}
    if stage.minutes is None:
        return recipe
    del recipe["recipe.epochs"]
    return recipe | {"minutes": stage.minutes}


def stage_request(
    job: TrainJob, stage: Stage, folder: Path, records: Iterable[Record], resume: bool
) -> TrainingRequest:
    """The request to the worker for a stage; the second stage starts from the checkpoint of the first."""
    init = job.train.init if stage is job.train else str(_run_folder(job, folder, records))
    return TrainingRequest(
        model=job.name,
        recipe=recipe_of(stage, job.seed),
        data=str(stage.data),
        study=folder,
        resume=resume,
        init=None if init is None else Path(init),
        minutes=stage.minutes,
        device=job.device,
        threads=job.threads,
        workers=job.train.workers,
        accumulation=job.train.accumulation,
        save_every=job.train.save_every,
        tensorboard=job.train.tensorboard,
        plugins=job.plugins,
        attention=job.attention,
    )


def images_of(stage: Stage, seed: int = 0) -> float:
    """The number of images in a stage, over all its epochs."""
    size = SETS[parse(stage.data or recipe_of(stage, seed).data).known.name].size
    return recipe_of(stage, seed).epochs * (size[0] if size else UNKNOWN_SET_IMAGES)


def _run_folder(job: TrainJob, folder: Path, records: Iterable[Record]) -> Path:
    before = final_record(job, job.train, records)
    if before is None:
        raise WorkError(f"{job}: cannot be fine-tuned, because its training has no final record in {folder}")
    return folder / "runs" / str(before.environment["run"])


def dataset_of(stage: Stage) -> str:
    """The data set as records name it; each folder of images is its own data set."""
    request = parse(stage.data or recipe_of(stage, 0).data)
    return (
        f"folder:{Path(request.path).name}" if request.known.name == "folder" and request.path else request.known.name
    )


@cache
def recipe_of(stage: Stage, seed: int) -> Recipe:
    """The recipe of a stage with the study's seed and epochs."""
    overrides = [*stage.set, f"seed={seed}", *([f"epochs={stage.epochs}"] if stage.epochs is not None else [])]
    return load_recipe(stage.recipe, overrides)
