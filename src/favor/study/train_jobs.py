"""Training runs as jobs of a study: the requests to the workers, and their records. Imports no torch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from favor.data.class_folders import count_training_images
from favor.data.names import parse
from favor.errors import WorkError
from favor.pipeline import changes_text
from favor.records.schema import Record, Scalar
from favor.study.schema import Stage, Train
from favor.training.recipe import Recipe, changes, load_recipe, pipeline_of
from favor.training.request import TrainingRequest
from favor.training.state import FirstWeights, without_sizes

UNKNOWN_SET_IMAGES = 50_000
USUAL_IMAGES = {"imagenet-21k": (11_000_000, 500_000)}
"""Roughly the size of its releases; counting their files would take minutes."""
FRESH = FirstWeights()

Lineage = tuple[Stage, ...]
"""A stage with those before it: each starts from the weights of the one before."""


@dataclass(frozen=True)
class TrainJob:
    """Train a model with one seed and recipe on a dataset, and fine-tune it as the study says."""

    name: str
    seed: int
    train: Train
    device: str
    threads: int
    plugins: tuple[str, ...]
    first_weights: FirstWeights = FRESH
    attention: str = "fused"
    grid_intensity: float | None = None
    price_per_hour: float | None = None
    log: tuple[str, ...] = field(default=(), compare=False)
    """The trackers of the whole study."""

    phase = "accuracy"
    budget = 0.0

    def __str__(self) -> str:
        recipe = recipe_of(self.train, self.seed, self.name)
        named = [recipe.name, *([self.train.name] if self.train.name else [])]
        return f"{self.name}@{recipe.img_size} accuracy {' '.join(named)} seed {self.seed}"

    @property
    def lineages(self) -> tuple[Lineage, ...]:
        """All training runs, each after the one that it starts from."""
        return tuple(lineages(self.train))


def lineages(stage: Stage, before: Lineage = ()) -> Iterator[Lineage]:
    """The lineages of a stage and of all its fine-tunings."""
    lineage = (*before, stage)
    yield lineage
    for later in stage.finetune:
        yield from lineages(later, lineage)


def final_record(job: TrainJob, lineage: Lineage, records: Iterable[Record]) -> Record | None:
    """The record of the last epoch of a training run; None if it is not done."""
    ended = [
        record
        for record in records
        if is_of(job, lineage, record) and record.status == "ok" and record.conditions.get("final") is True
    ]
    return ended[-1] if ended else None


def is_of(job: TrainJob, lineage: Lineage, record: Record) -> bool:
    """Whether a record belongs to a training run of the job: same recipe, dataset, initial weights and name."""
    if (record.name, record.task) != (job.name, job.phase):
        return False
    conditions = record.conditions
    if conditions.get("attention", "fused") != job.attention:
        return False
    stage = lineage[-1]
    dataset, expected = without_sizes(str(conditions.get("dataset", ""))), stage_conditions(stage, job.seed, job.name)
    return (
        dataset == dataset_of(stage)
        and all(conditions.get(key) == value for key, value in expected.items())
        and FirstWeights.of(conditions).agrees_with(initial_weights(job, lineage))
        and _has_name(record, stage.name)
    )


def _has_name(record: Record, name: str | None) -> bool:
    """Whether a training run has this name; in records of older versions, only its folder's name ends with it."""
    told = record.conditions.get("training_name")
    if told is None and name is not None:
        return str(record.environment.get("run", "")).endswith(f"-{name}")
    return told == name


def initial_weights(job: TrainJob, lineage: Lineage) -> FirstWeights:
    """How the weights that a training run starts from were trained."""
    return weights_after(job.first_weights, lineage[:-1], job.seed, job.name)


def weights_after(start: FirstWeights, trainings: Lineage, seed: int, model: str) -> FirstWeights:
    """The weights after training runs of which the first starts from the given ones."""
    for stage in trainings:
        start = start.after(dataset_of(stage), recipe_of(stage, seed, model).img_size, stage_pipeline(stage), seed)
    return start


def stage_conditions(stage: Stage, seed: int, model: str) -> dict[str, Scalar]:
    """The conditions of a stage's records: the recipe, and when training ends."""
    recipe = {key: value for key, value in recipe_of(stage, seed, model).flat().items() if key != "recipe.data"}
    if stage.minutes is None:
        return recipe
    del recipe["recipe.epochs"]
    return recipe | {"minutes": stage.minutes}


def stage_request(
    job: TrainJob,
    lineage: Lineage,
    folder: Path,
    records: Iterable[Record],
    resume: bool,
    writer: str | None = None,
) -> TrainingRequest:
    """The request to the worker for a training run, which may start from the checkpoint of the one before."""
    stage, processes = lineage[-1], job.train.processes
    is_first = len(lineage) == 1
    init = stage.init if is_first else str(_run_folder(job, lineage[:-1], folder, records))
    recipe = recipe_of(stage, job.seed, job.name)
    return TrainingRequest(
        model=job.name,
        recipe=recipe,
        data=str(stage.data),
        study=folder,
        name=stage.name,
        pipeline=stage_pipeline(stage),
        overrides=changes_text(changes(recipe, _recipe_for_all(stage), stage.minutes)) or None,
        resume=resume,
        init=None if init is None else Path(init),
        init_hash=job.first_weights.hash if is_first else None,
        minutes=stage.minutes,
        device=job.device if processes == 1 else job.device.partition(":")[0],
        threads=max(1, job.threads // processes),
        processes=processes,
        workers=job.train.workers,
        accumulation=job.train.accumulation,
        save_every=job.train.save_every,
        log=tuple(dict.fromkeys((*job.train.log, *job.log))),
        plugins=job.plugins,
        attention=job.attention,
        grid_intensity=job.grid_intensity,
        price_per_hour=job.price_per_hour,
        writer=writer,
    )


def images_of(stage: Stage) -> tuple[int, int]:
    """The training and evaluation images of an epoch, as far as they can be told without opening the dataset."""
    return _images_in(stage.data or load_recipe(stage.recipe).data)


@cache
def _images_in(data: str) -> tuple[int, int]:
    request = parse(data)
    if request.known.size is not None:
        return request.known.size
    if request.known.name in USUAL_IMAGES:
        return USUAL_IMAGES[request.known.name]
    counted = count_training_images(request.path) if request.path is not None and request.path.is_dir() else 0
    return counted or UNKNOWN_SET_IMAGES, 0


def _run_folder(job: TrainJob, lineage: Lineage, folder: Path, records: Iterable[Record]) -> Path:
    before = final_record(job, lineage, records)
    if before is None:
        raise WorkError(f"{job}: cannot be fine-tuned, because its training has no final record in {folder}")
    return folder / "runs" / str(before.environment["run"])


def dataset_of(stage: Stage) -> str:
    """The dataset as records name it; each folder of images is its own dataset."""
    request = parse(stage.data or load_recipe(stage.recipe).data)
    return (
        f"folder:{Path(request.path).name}" if request.known.name == "folder" and request.path else request.known.name
    )


@cache
def recipe_of(stage: Stage, seed: int, model: str) -> Recipe:
    """The recipe of a stage with the study's seed and epochs, and the overrides for the model."""
    of_model = [entry for override in stage.overrides if model in override.models for entry in override.set]
    epochs = [f"epochs={stage.epochs}"] if stage.epochs is not None else []
    return load_recipe(stage.recipe, [*stage.set, *epochs, *of_model, f"seed={seed}"])


def _recipe_for_all(stage: Stage) -> Recipe:
    """The recipe of a stage without the overrides for single models."""
    return recipe_of(stage, 0, "")


@cache
def stage_pipeline(stage: Stage) -> str:
    """The pipeline of a stage, which its models share: overrides for some of them are conditions of their own."""
    return pipeline_of(_recipe_for_all(stage), stage.minutes, stage.recipe)
