"""The jobs of a study, ordered so that stopping early leaves useful results. Imports no torch."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import cast

from favor.measurement.job import MeasureJob
from favor.records.schema import Scalar
from favor.study.resolved import PlannedModel, ResolvedStudy
from favor.study.schema import MeasureOptions
from favor.study.train_jobs import TrainJob
from favor.trace.conditions import Phase
from favor.zoo.taxonomy import How

# A batch size depends on the phase; all other options are the same for every job of a study.
SHARED_OPTIONS = {field.name for field in fields(MeasureJob)} & set(MeasureOptions.model_fields) - {"batch_size"}


@dataclass(frozen=True)
class CountJob:
    """Count parameters, operations and memory of a model without running it."""

    name: str
    img_size: int
    num_classes: int

    phase = "count"
    budget = 0.0

    @property
    def conditions(self) -> Mapping[str, Scalar]:
        """The conditions of its record that the request determines."""
        return {"img_size": self.img_size, "num_classes": self.num_classes, "batch_size": 1}

    def __str__(self) -> str:
        return f"{self.name}@{self.img_size} count"


Job = CountJob | MeasureJob | TrainJob


def jobs_of(study: ResolvedStudy) -> tuple[Job, ...]:
    """All jobs: counts, then inference of the first model of each class, then of the second ones, then training.

    Baselines come first, because the others are compared with them; then models without a class, such as plugins.
    """
    models = _by_rounds(study.models)
    jobs: list[Job] = []
    if "count" in study.phases:
        jobs += [CountJob(model.name, size, study.num_classes) for model in models for size in model.img_sizes]
    for phase in ("inference", "training"):
        if phase in study.phases:
            jobs += _measure_jobs(study, models, phase)
    if "accuracy" in study.phases and study.train is not None:
        machine = study.machine
        jobs += [
            TrainJob(
                name=model.name,
                seed=seed,
                train=study.train,
                device=machine.device,
                threads=machine.threads,
                plugins=study.plugins,
                first_weights=study.first_weights,
                attention=study.attention,
            )
            for seed in study.train.seeds
            for model in models
        ]
    return tuple(jobs)


def _measure_jobs(study: ResolvedStudy, models: Iterable[PlannedModel], phase: Phase) -> Iterator[MeasureJob]:
    """The smallest image size first: models are compared at it, and it is the cheapest."""
    batch_size = study.batch_size.inference if phase == "inference" else study.batch_size.training
    shared = {name: getattr(study, name) for name in SHARED_OPTIONS}
    listed = list(models)
    sizes = sorted({size for model in listed for size in model.img_sizes})
    for precision, size, model in product(study.precisions, sizes, listed):
        if size in model.img_sizes:
            yield MeasureJob(
                name=model.name,
                phase=phase,
                img_size=size,
                precision=precision,
                batch_size=None if batch_size == "best" else cast(int, batch_size),
                device=study.machine.device,
                device_label=study.machine.label,
                threads=study.machine.threads,
                plugins=study.plugins,
                budget=study.budget.measurement,
                **shared,
            )


def _by_rounds(models: Iterable[PlannedModel]) -> list[PlannedModel]:
    """The first model of every class, then the second of every class, and so on.

    >>> of = lambda name, how: PlannedModel(name=name, how=how, img_sizes=(224,))
    >>> [model.name for model in _by_rounds([of("a1", "sparse"), of("a2", "sparse"), of("b", "baseline")])]
    ['b', 'a1', 'a2']
    """
    strategies: list[str | None] = [how.key for how in How]
    order = [strategies[0], None, *strategies[1:]]
    seen: dict[str | None, int] = {}
    ranked = []
    for model in models:
        seen[model.how] = seen.get(model.how, 0) + 1
        ranked.append((seen[model.how], order.index(model.how), model))
    return [model for *_, model in sorted(ranked, key=lambda entry: entry[:2])]
