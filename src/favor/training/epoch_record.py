"""The record of an epoch: its accuracy, its costs and the whole recipe."""

from dataclasses import dataclass

from favor.machine.footprint import carbon, money
from favor.machine.memory import process_peak
from favor.machine.precision import training_precision
from favor.records.schema import CardFields, Reading, Record, Scalar, Status, reading, timestamp
from favor.trace.attention import attention_conditions
from favor.training.evaluation import Scores
from favor.training.initial_weights import Start
from favor.training.recipe import Recipe, pipeline_of
from favor.training.state import Readings, Sums, Survey
from favor.zoo.registry import card


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
    grid_intensity: float | None = None
    price_per_hour: float | None = None
    pipeline: str | None = None
    overrides: str | None = None
    name: str | None = None

    def conditions(self) -> dict[str, Scalar]:
        """The request; `pipeline` distinguishes a changed recipe from the original."""
        recipe = self.recipe.flat()
        asked: dict[str, Scalar] = {
            "dataset": self.dataset,
            "pipeline": self.pipeline or pipeline_of(self.recipe, self.minutes),
            **self.start.described.conditions(),
            "distillation": False,
            "img_size": self.recipe.img_size,
            "batch_size": self.recipe.batch_size,
            "device": self.device_label,
            "precision": training_precision(self.recipe.precision, self.device_kind),
            **attention_conditions(self.attention),
        }
        optional = {
            "grid_intensity": self.grid_intensity,
            "price_per_hour": self.price_per_hour,
            "overrides": self.overrides,
            "training_name": self.name,
        }
        asked |= {name: value for name, value in optional.items() if value is not None}
        if self.minutes is not None:
            del recipe["recipe.epochs"]
            asked["minutes"] = self.minutes
        return asked | recipe


@dataclass(frozen=True)
class Memory:
    """The peak memory of a training step in bytes: the largest of the processes, and the sum over them."""

    largest: int
    total: int
    method: str


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
    micro_batch_size: int
    memory: Memory
    joules: float | None
    energy_method: str

    @property
    def conditions(self) -> dict[str, Scalar]:
        """How the steps were run, and how far the training is."""
        return {
            "processes": self.processes,
            "micro_batch_size": self.micro_batch_size,
            "epoch_images": self.images_of_an_epoch,
            "epochs": _whole(self.epochs),
            "final": self.final,
        }


def epoch_record(subject: Subject, epoch: Epoch, survey: Survey, environment: dict[str, Scalar]) -> Record:
    """The record of an epoch."""
    clocks: dict[str, Scalar] = {
        "evaluation_images": epoch.scores.images,
        "training_seconds": round(epoch.clocks.training, 3),
        "evaluation_seconds": round(epoch.clocks.evaluation, 3),
        "program_seconds": round(epoch.clocks.program, 3),
    }
    return Record(
        name=subject.model,
        model=CardFields.of(card(subject.model)),
        task="accuracy",
        source="measured",
        conditions=subject.conditions() | epoch.conditions,
        metrics={**_qualities(epoch), **_costs(subject, epoch, survey)},
        environment=environment | clocks,
        time=timestamp(),
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
        time=timestamp(),
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


def _costs(subject: Subject, epoch: Epoch, survey: Survey) -> dict[str, Reading]:
    sums, memory = epoch.sums, epoch.memory
    share = sums.images / epoch.images_of_an_epoch
    hours_per_epoch = sums.seconds / 3600 / share
    device_hours_per_epoch = sums.device_seconds(epoch.processes) / 3600 / share
    timed = f"{sums.seconds:.4g} s for {sums.images} images of the epoch, with data; the whole by proportion"
    all_processes = "summed over the processes"
    working = sums.seconds - sums.waited
    before = "median, before the training" + (", without the exchange of gradients" if epoch.processes > 1 else "")
    with_data = (survey.end_to_end, survey.end_to_end_low, survey.end_to_end_high)
    costs = {
        "train_throughput": reading(
            "train_throughput",
            sums.images / working,
            method=f"{sums.images} images in {working:.4g} s; {sums.waited:.4g} s of wait for data left out",
        ),
        "train_hours_per_epoch": reading("train_hours_per_epoch", hours_per_epoch, method=timed),
        "train_device_hours_per_epoch": reading(
            "train_device_hours_per_epoch", device_hours_per_epoch, method=f"{timed}, {all_processes}"
        ),
        "train_step_time": reading(
            "train_step_time",
            survey.step_time,
            survey.step_time_low,
            survey.step_time_high,
            method=f"{before}, data in memory",
        ),
        "train_step_time_end_to_end": reading("train_step_time_end_to_end", *with_data, method=before),
        "pipeline_idle_time": reading("pipeline_idle_time", survey.idle, method=f"difference of two medians; {before}"),
        "train_memory": reading("train_memory", memory.largest, method=memory.method),
        "train_memory_total": reading("train_memory_total", memory.total, method=memory.method),
        "train_memory_process": reading(
            "train_memory_process", process_peak(), method="resident peak of the leading process"
        ),
    }
    if sums.joules is not None:
        joules = sums.joules / sums.images
        costs["train_energy_per_image"] = reading("train_energy_per_image", joules, method=epoch.energy_method)
    if epoch.final:
        hours, method = epoch.clocks.device_seconds(epoch.processes) / 3600, f"training clock, {all_processes}"
        costs["train_device_hours"] = reading("train_device_hours", hours, method=method)
        if subject.start.pretraining != "none":
            costs["finetune_time"] = reading("finetune_time", hours, method=method)
        if subject.price_per_hour is not None:
            price = money(hours * 3600, subject.price_per_hour)
            costs["train_money"] = reading("train_money", price, method=f"{method} and the price")
        if epoch.joules is not None:
            costs["train_energy"] = reading("train_energy", epoch.joules, method=epoch.energy_method)
            if subject.grid_intensity is not None:
                grams = carbon(epoch.joules, subject.grid_intensity)
                costs["train_carbon"] = reading("train_carbon", grams, method=epoch.energy_method)
    return costs


def _whole(epochs: float) -> int | float:
    """Epochs as people write them: 8 rather than 8.0."""
    return int(epochs) if epochs == int(epochs) else round(epochs, 4)
