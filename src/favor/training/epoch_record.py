"""The record of an epoch: its accuracy, its costs and the whole recipe."""

from dataclasses import dataclass

from favor.machine.device import Device
from favor.machine.memory import process_peak
from favor.machine.precision import resolve_precision
from favor.records.schema import CardFields, Reading, Record, Scalar, Status, reading, timestamp
from favor.trace.attention import attention_conditions
from favor.training.evaluation import Scores
from favor.training.initial_weights import Start
from favor.training.recipe import Recipe, load_recipe, recipe_names
from favor.training.state import Readings, Sums, Survey
from favor.zoo.registry import card

# Keys that a run may change without changing the pipeline: they are conditions of their own.
_OUTSIDE_OF_THE_PIPELINE = frozenset({"doc", "data", "img_size", "seed"})


@dataclass(frozen=True)
class Subject:
    """What all records of a run have in common."""

    model: str
    recipe: Recipe
    dataset: str
    start: Start
    minutes: float | None
    device_label: str
    device_kind: str
    attention: str = "fused"

    def conditions(self) -> dict[str, Scalar]:
        """The request; `pipeline` distinguishes a changed recipe from the original."""
        recipe = self.recipe.flat()
        asked: dict[str, Scalar] = {
            "dataset": self.dataset,
            "pipeline": pipeline_of(self.recipe, self.minutes),
            "pretraining": self.start.pretraining,
            "distillation": False,
            "img_size": self.recipe.img_size,
            "batch_size": self.recipe.batch_size,
            "device": self.device_label,
            "precision": resolve_precision(self.recipe.precision, self.device_kind),
            **attention_conditions(self.attention),
        }
        if self.start.img_size is not None:
            asked["pretraining_img_size"] = self.start.img_size
        if self.minutes is not None:
            del recipe["recipe.epochs"]
            asked["minutes"] = self.minutes
        return asked | recipe


def pipeline_of(recipe: Recipe, minutes: float | None = None) -> str:
    """A recipe's name and version, and the changed keys.

    >>> pipeline_of(load_recipe("laptop-digits", ["lr=2e-3", "seed=1"]))
    'laptop-digits@1 lr=0.002'
    """
    named = f"{recipe.name}@{recipe.version}"
    changed: dict[str, object] = {}
    if recipe.name in recipe_names():
        original = load_recipe(recipe.name).model_dump()
        changed = {key: value for key, value in recipe.model_dump().items() if value != original[key]}
    if minutes is not None:
        changed = {**changed, "minutes": minutes}
        changed.pop("epochs", None)
    changes = [f"{key}={value}" for key, value in changed.items() if key not in _OUTSIDE_OF_THE_PIPELINE]
    return " ".join([named, *changes])


@dataclass(frozen=True)
class Epoch:
    """The results after the evaluation of an epoch."""

    epochs: float
    final: bool
    scores: Scores
    sums: Sums
    clocks: Readings
    images_of_an_epoch: int
    processes: int
    energy_method: str


def epoch_conditions(subject: Subject, epochs: float, final: bool) -> dict[str, Scalar]:
    """The conditions of an epoch's record, with the epoch and whether it is the last."""
    return subject.conditions() | {"epochs": _whole(epochs), "final": final}


def epoch_record(
    subject: Subject, epoch: Epoch, found: Survey, device: Device, environment: dict[str, Scalar]
) -> Record:
    """The record of an epoch."""
    clocks = {
        "training_seconds": round(epoch.clocks.training, 3),
        "evaluation_seconds": round(epoch.clocks.evaluation, 3),
        "program_seconds": round(epoch.clocks.program, 3),
    }
    return Record(
        name=subject.model,
        model=CardFields.of(card(subject.model)),
        task="accuracy",
        source="measured",
        conditions=epoch_conditions(subject, epoch.epochs, epoch.final),
        metrics={**_qualities(epoch), **_costs(subject, epoch, found, device)},
        environment=environment | clocks,
        time=_now(),
    )


def failure_record(subject: Subject, status: Status, reason: str, environment: dict[str, Scalar]) -> Record:
    """The record of a run that failed."""
    return Record(
        name=subject.model,
        model=CardFields.of(card(subject.model)),
        task="accuracy",
        source="measured",
        conditions=subject.conditions(),
        status=status,
        reason=reason,
        environment=environment,
        time=_now(),
    )


def _qualities(epoch: Epoch) -> dict[str, Reading]:
    scores = epoch.scores
    on = f"each of {scores.images} images once"
    return {
        "top1": reading("top1", scores.top1, method=on),
        "top5": reading("top5", scores.top5, method=on),
        "loss": reading("loss", scores.loss, method=on),
        "train_loss": reading("train_loss", epoch.sums.loss / epoch.sums.images, method=f"{epoch.sums.images} images"),
    }


def _costs(subject: Subject, epoch: Epoch, found: Survey, device: Device) -> dict[str, Reading]:
    sums = epoch.sums
    working = sums.seconds - sums.waited
    before = "median, before the training"
    with_data = (found.end_to_end, found.end_to_end_low, found.end_to_end_high)
    costs = {
        "train_throughput": reading(
            "train_throughput",
            sums.images / working,
            method=f"{sums.images} images in {working:.4g} s; {sums.waited:.4g} s of wait for data left out",
        ),
        "train_hours_per_epoch": reading(
            "train_hours_per_epoch",
            sums.seconds / 3600 * epoch.images_of_an_epoch / sums.images,
            method=f"{sums.seconds:.4g} s for {sums.images} images of the epoch, with data; the whole by proportion",
        ),
        "train_step_time": reading(
            "train_step_time",
            found.step_time,
            found.step_time_low,
            found.step_time_high,
            method=f"{before}, data in memory",
        ),
        "train_step_time_end_to_end": reading("train_step_time_end_to_end", *with_data, method=before),
        "pipeline_idle_time": reading("pipeline_idle_time", found.idle, method=f"difference of two medians; {before}"),
        "train_memory": reading("train_memory", found.memory, method=found.memory_method),
        "memory_process": reading("memory_process", process_peak(), method="resident peak of the leading process"),
    }
    if device.kind == "cuda":
        import torch

        peak = torch.cuda.max_memory_allocated(device.place)
        costs["train_memory"] = reading("train_memory", peak, method="torch.cuda.max_memory_allocated, whole training")
    if sums.joules is not None:
        joules = sums.joules / sums.images
        costs["train_energy_per_image"] = reading("train_energy_per_image", joules, method=epoch.energy_method)
    if epoch.final and subject.start.pretraining != "none":
        hours = epoch.clocks.training / 3600 * epoch.processes
        method = f"training clock times {epoch.processes} process(es)"
        costs["finetune_time"] = reading("finetune_time", hours, method=method)
    return costs


def _whole(epochs: float) -> int | float:
    """Epochs as people write them: 8 rather than 8.0."""
    return int(epochs) if epochs == int(epochs) else round(epochs, 4)


def _now() -> str:
    return timestamp()
