"""The jobs of a study, ordered so that stopping early leaves useful results. Imports no torch."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import cast

from favor.measurement.job import MeasureJob
from favor.records.schema import Scalar
from favor.runtime.names import RUNTIMES, TRAINING
from favor.study.resolved import PlannedModel, ResolvedStudy
from favor.study.schema import Load, MeasureOptions
from favor.study.train_jobs import TrainJob
from favor.trace.conditions import Phase
from favor.zoo.taxonomy import How

FOR_INT8 = ("calibration", "checkpoint", "checkpoint_hash")
# A batch size depends on the phase; all other options are the same for every job of a study.
SHARED_OPTIONS = {field.name for field in fields(MeasureJob)} & set(MeasureOptions.model_fields) - {
    *("batch_size", *FOR_INT8)
}


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
    if "load" in study.phases and study.load is not None:
        jobs += _load_jobs(study, study.load, models)
    if "accuracy" in study.phases:
        jobs += [
            TrainJob(
                name=model.name,
                seed=seed,
                train=train,
                device=study.machine.device,
                threads=study.machine.threads,
                plugins=study.plugins,
                first_weights=first_weights,
                attention=study.attention,
                grid_intensity=study.grid_intensity,
                price_per_hour=study.price_per_hour,
                log=study.log,
            )
            # Not strict: in older files, a study without a training run has initial weights, too.
            for train, first_weights in zip(study.train, study.first_weights, strict=False)
            for seed in train.seeds
            for model in models
            if train.models is None or model.name in train.models
        ]
    return tuple(jobs)


def _measure_jobs(study: ResolvedStudy, models: Iterable[PlannedModel], phase: Phase) -> Iterator[MeasureJob]:
    """The smallest image size first: models are compared at it, and it is the cheapest."""
    batch_size = study.batch_size.inference if phase == "inference" else study.batch_size.training
    shared = {name: getattr(study, name) for name in SHARED_OPTIONS}
    listed = list(models)
    sizes = sorted({size for model in listed for size in model.img_sizes})
    for (runtime, precision), size, model in product(ways_to_run(study, phase), sizes, listed):
        if size in model.img_sizes:
            yield MeasureJob(
                name=model.name,
                phase=phase,
                img_size=size,
                runtime=runtime,
                precision=precision,
                **({name: getattr(study, name) for name in FOR_INT8} if precision == "int8" else {}),
                batch_size=None if batch_size == "best" else cast(int, batch_size),
                device=study.machine.device,
                device_label=study.machine.label,
                threads=study.machine.threads,
                plugins=study.plugins,
                budget=study.budget.measurement,
                **shared,
            )


def ways_to_run(study: MeasureOptions, phase: Phase) -> list[tuple[str, str]]:
    """The runtimes with their precisions in which models are measured; eager has no int8, and OpenVINO does not train.

    >>> ways_to_run(MeasureOptions(runtimes=("eager", "openvino"), precisions=("fp32", "int8")), "inference")
    [('eager', 'fp32'), ('openvino', 'fp32'), ('openvino', 'int8')]
    """
    return [
        (runtime, precision)
        for precision, runtime in product(study.precisions, study.runtimes)
        if precision in RUNTIMES[runtime].precisions and (phase == "inference" or runtime in TRAINING)
    ]


def _load_jobs(study: ResolvedStudy, load: Load, models: Iterable[PlannedModel]) -> Iterator[MeasureJob]:
    for (runtime, precision), model in product(ways_to_run(study, "inference"), models):
        for size in model.img_sizes:
            yield MeasureJob(
                name=model.name,
                phase="load",
                img_size=size,
                precision=precision,
                device=study.machine.device,
                device_label=study.machine.label,
                threads=study.machine.threads,
                num_classes=study.num_classes,
                attention=study.attention,
                budget=load.budget,
                time_limit=study.time_limit,
                memory_limit=study.memory_limit,
                energy=False,
                plugins=study.plugins,
                runtime=runtime,
                **({name: getattr(study, name) for name in FOR_INT8} if precision == "int8" else {}),
                scenario=load.scenario,
                p99=load.p99,
            )


def ways_left_out(study: MeasureOptions) -> list[str]:
    """The runtimes and precisions of a study that do not go together.

    >>> ways_left_out(MeasureOptions(runtimes=("eager", "openvino"), precisions=("fp32", "int8")))
    ['eager int8']
    """
    asked = product(study.precisions, study.runtimes)
    return [f"{runtime} {precision}" for precision, runtime in asked if precision not in RUNTIMES[runtime].precisions]


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
