"""Training as jobs of a study: what `favor train` is asked, and which of its records answer it. Imports no torch."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from favor.data.names import SETS, parse
from favor.errors import WorkError
from favor.records.schema import Record, Scalar
from favor.study.schema import Stage, Train
from favor.train.recipe import Recipe, load_recipe

UNKNOWN_SET_IMAGES = 50_000


@dataclass(frozen=True)
class TrainJob:
    """Train a model from one seed, by a recipe on a data set, and fine-tune it if the study says so."""

    name: str
    seed: int
    train: Train
    device: str
    threads: int
    plugins: tuple[str, ...]

    phase = "accuracy"

    def __str__(self) -> str:
        return f"{self.name} accuracy seed {self.seed}"

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The trainings, each from the weights of the one before."""
        return (self.train, *([self.train.finetune] if self.train.finetune else []))


def final_record(job: TrainJob, stage: Stage, records: Iterable[Record]) -> Record | None:
    """The record of the last epoch of a stage; None where the stage is not done."""
    ended = [
        record
        for record in records
        if is_of(job, stage, record) and record.status == "ok" and record.conditions.get("final") is True
    ]
    return ended[-1] if ended else None


def is_of(job: TrainJob, stage: Stage, record: Record) -> bool:
    """Whether a record is of a stage of the job: the same recipe in every number, the same data set."""
    if (record.name, record.task) != (job.name, job.phase):
        return False
    # A cut of a set says its size behind its name.
    dataset = str(record.conditions.get("dataset", "")).partition("[")[0]
    asked = stage_conditions(stage, job.seed)
    return dataset == _set_name(stage) and all(record.conditions.get(key) == value for key, value in asked.items())


def stage_conditions(stage: Stage, seed: int) -> dict[str, Scalar]:
    """What the conditions of a stage's records say of the recipe and of when training ends."""
    recipe = {key: value for key, value in recipe_of(stage, seed).flat().items() if key != "recipe.data"}
    if stage.minutes is None:
        return recipe
    del recipe["recipe.epochs"]
    return recipe | {"minutes": stage.minutes}


def stage_arguments(job: TrainJob, stage: Stage, folder: Path, records: Iterable[Record]) -> list[str]:
    """The words of the command that trains a stage; a second stage starts from what the first one left."""
    words = ["train", job.name, "--recipe", stage.recipe, "--data", str(stage.data), "--out", str(folder), "--resume"]
    words += ["--set", f"seed={job.seed}", "--device", job.device, "--threads", str(job.threads)]
    if stage.epochs is not None:
        words += ["--epochs", str(stage.epochs)]
    if stage.minutes is not None:
        words += ["--minutes", f"{stage.minutes:g}"]
    if stage is not job.train:
        words += ["--init", str(_run_folder(job, folder, records))]
    for plugin in reversed(job.plugins):
        words = ["--plugin", plugin, *words]
    return words


def images_of(stage: Stage, seed: int = 0) -> float:
    """How many images a stage is trained on, over all its epochs."""
    size = SETS[_set_name(stage)].size
    return recipe_of(stage, seed).epochs * (size[0] if size else UNKNOWN_SET_IMAGES)


def _run_folder(job: TrainJob, folder: Path, records: Iterable[Record]) -> Path:
    before = final_record(job, job.train, records)
    if before is None:
        raise WorkError(f"{job}: cannot be fine-tuned, because its training has no final record in {folder}")
    return folder / "runs" / str(before.environment["run"])


def _set_name(stage: Stage) -> str:
    return parse(stage.data or recipe_of(stage, 0).data).known.name


@cache
def recipe_of(stage: Stage, seed: int) -> Recipe:
    """The recipe of a stage, with the seed and the epochs that the study gives it."""
    overrides = [f"seed={seed}", *([f"epochs={stage.epochs}"] if stage.epochs is not None else [])]
    return load_recipe(stage.recipe, overrides)
