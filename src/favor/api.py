"""The public verbs of favor: `favor.count`, `measure`, `simulate`, `train`, `recommend`, `pareto`, `load_records`.

Each does the same as the command of that name and returns the result. Imports are inside the functions, so that
`import favor` stays fast and torch is imported only where it is needed.
"""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from favor.errors import RequestError, WorkError, unknown_name
from favor.terminal import note

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from favor.analyze.recommendation import Recommendation
    from favor.records.schema import Record
    from favor.study.resolved import ResolvedStudy
    from favor.trace.counts import Counts

PhaseWord = Literal["inference", "training", "both"]
PathLike = str | Path
Studies = PathLike | Sequence[PathLike]


@dataclass(frozen=True)
class Records(Sequence["Record"]):
    """Records of several models, as a sequence and, with `table()`, as a pandas table."""

    records: tuple["Record", ...]

    @overload
    def __getitem__(self, index: int) -> "Record": ...
    @overload
    def __getitem__(self, index: slice) -> "Records": ...
    def __getitem__(self, index: int | slice) -> "Record | Records":
        return Records(self.records[index]) if isinstance(index, slice) else self.records[index]

    def __len__(self) -> int:
        return len(self.records)

    def table(self) -> "pd.DataFrame":
        """One row per model and conditions, one column per condition and metric, as in `favor.load_records`."""
        from favor.records.table import table_of

        return table_of(self.records)

    def _repr_html_(self) -> str:
        import pandas as pd

        from favor.units import format_quantity

        rows = [
            {
                "model": record.name,
                "phase": record.task,
                "device": record.conditions.get("device", ""),
                **{name: format_quantity(reading.value, reading.unit) for name, reading in record.metrics.items()},
                "status": record.status if record.reason is None else f"{record.status}: {record.reason}",
            }
            for record in self.records
        ]
        return pd.DataFrame(rows).fillna("").to_html(index=False)


@dataclass(frozen=True)
class TrainingRun:
    """A finished training run: the record of its last epoch, and the folder of its checkpoints."""

    record: "Record"
    folder: Path

    def _repr_html_(self) -> str:
        return Records((self.record,))._repr_html_()


def count(
    model: "str | nn.Module",
    *,
    img_size: int | tuple[int, int] | None = None,
    num_classes: int | None = None,
    batch_size: int = 1,
    phase: Literal["inference", "training"] = "inference",
) -> "Counts":
    """Count the parameters, multiply-adds, FLOPs, activations and bytes of a model, without running it.

    `model` is a name of the zoo, `timm:NAME`, or your own `nn.Module`.

    >>> import favor
    >>> favor.count("vit_s16").macs_matmul
    4598882304
    """
    from favor.trace.conditions import phase_named
    from favor.trace.counts import count as count_operators

    training = phase_named(phase) == "training"
    return count_operators(model, img_size=img_size, num_classes=num_classes, batch_size=batch_size, training=training)


def measure(
    models: str | Iterable[str],
    *,
    study: PathLike | None = None,
    phase: PhaseWord = "inference",
    device: str | None = None,
    precision: str = "fp32",
    runtime: str = "eager",
    calibration: str | None = None,
    checkpoint: PathLike | None = None,
    img_size: int | None = None,
    num_classes: int = 1000,
    batch_size: int | Literal["best"] | None = None,
    budget: float = 20.0,
    optimizer: str = "lamb",
    threads: int | None = None,
    log: str | Sequence[str] = (),
    **others: object,
) -> Records:
    """Measure time, memory and energy of models on this machine, each model and phase in its own process.

    Models are named as for `favor measure`, patterns included. With `study`, the records are kept there, and what it
    already has is not measured again. A model that fails gives a record with its status and reason. `log` names
    trackers to which the study's records are sent: tensorboard, wandb, mlflow or trackio. `others` are the other
    options of `favor measure`, such as `attention="plain"`, `memory_limit="4GiB"` or `grid_intensity=400.0`.

    >>> import favor
    >>> records = favor.measure("vit_xs4", batch_size=1, budget=0.5)  # doctest: +SKIP
    >>> records[0].metrics["latency_p50"].value  # doctest: +SKIP
    0.0021
    """
    from favor.study.options import study_from_options
    from favor.study.schema import MeasureOptions
    from favor.trace.conditions import phases_named

    options = {
        "device": device,
        "precisions": [precision],
        "runtimes": [runtime],
        "calibration": calibration,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "img_sizes": None if img_size is None else [img_size],
        "num_classes": num_classes,
        "batch_size": batch_size,
        "budget": budget,
        "optimizer": optimizer,
        "threads": threads,
        "log": list(_several(log)),
    }
    _check_names(others, set(MeasureOptions.model_fields) - set(options))
    names = [models] if isinstance(models, str) else list(models)
    asked = study_from_options("measure", names, phases_named(phase), options | others)
    return Records(_run(asked, None if study is None else Path(study)))


def simulate(
    models: str | Iterable[str],
    device: str | Iterable[str],
    *,
    study: PathLike | None = None,
    phase: PhaseWord = "inference",
    precision: str = "amp",
    img_size: int | None = None,
    num_classes: int = 1000,
    batch_size: int | Literal["best"] | None = None,
    optimizer: str = "lamb",
    runtime: Literal["eager", "compile"] = "eager",
) -> Records:
    """Predict what models would cost on GPUs that you do not have; every number has a 95 % interval.

    A device is a name from `favor devices` or the path of your own YAML file. With `study`, the records are kept there,
    what it already has is not simulated again, and its measurements on the device correct the simulation.

    >>> import favor
    >>> speed = favor.simulate("vit_s16", "a100", batch_size=64)[0].metrics["throughput"]
    >>> speed.low < speed.value < speed.high
    True
    """
    from favor.simulation.devices import device as described
    from favor.simulation.simulation import SimulationRequest
    from favor.simulation.study_simulation import plan_simulations
    from favor.trace.conditions import phases_named

    requests = [
        SimulationRequest(named, precision, batch_size, img_size, num_classes, optimizer, runtime=runtime)
        for named in phases_named(phase)
    ]
    devices = [described(name) for name in _several(device)]
    plan = plan_simulations(_names(models), devices, requests, None if study is None else Path(study))
    records, refused = list(plan.done), []
    for simulated in plan.run():
        records += simulated.records
        refused += [] if simulated.refusal is None else [RequestError(f"{simulated.name}: {simulated.refusal}")]
    _tell_refused(refused, records)
    return Records(tuple(records))


def train(
    model: str,
    *,
    recipe: str = "laptop-digits",
    data: str | None = None,
    study: PathLike = "runs/train",
    epochs: int | None = None,
    minutes: float | None = None,
    resume: bool = False,
    init: PathLike | None = None,
    device: str | None = None,
    threads: int | None = None,
    workers: int | None = None,
    log: str | Sequence[str] = (),
    **others: object,
) -> TrainingRun:
    """Train a model with a recipe; the study gets one record per epoch, and checkpoints below its `runs` folder.

    `recipe` is a name or the path of a YAML file; `data` is a dataset, written `NAME` or `NAME:PATH`. With `resume`, a
    run that was interrupted or failed continues from its last checkpoint. If training fails, WorkError has the reason.
    `log` names trackers: tensorboard, wandb, mlflow or trackio. `others` are the other options of `favor train`, such
    as `set=["lr=5e-4", "seed=1"]` or `accumulation=2`.

    >>> import favor
    >>> run = favor.train("vit_xs4", recipe="laptop-digits", epochs=8)  # doctest: +SKIP
    >>> round(run.record.metrics["top1"].value, 1)  # doctest: +SKIP
    58.9
    """
    from favor.study.options import study_from_options, train_options
    from favor.study.schema import Train
    from favor.training.distributed import is_one_of_several

    if is_one_of_several():
        raise RequestError("favor.train starts its own processes: give it processes=N, or use torchrun -m favor train")
    options = {
        "recipe": recipe,
        "data": data,
        "epochs": epochs,
        "minutes": minutes,
        "init": None if init is None else str(init),
        "workers": workers,
        "log": list(_several(log)),
    }
    _check_names(others, {name for name, field in Train.model_fields.items() if field.description} - set(options))
    machine, folder = {"device": device, "threads": threads}, Path(study)
    asked = study_from_options("train", [model], ("accuracy",), machine, train=train_options(options | others))
    if len(asked.models) > 1:
        raise RequestError(f"{model!r} stands for {len(asked.models)} models; favor.train trains one")
    records = _run(asked, folder, repeat="failed" if resume else None, resume=resume)
    if not records:
        raise WorkError(f"{model}: the training was interrupted; resume=True continues it")
    record = records[0]
    if record.status != "ok":
        raise WorkError(f"{record.name}: {record.status}: {record.reason}")
    return TrainingRun(record, folder / "runs" / str(record.environment["run"]))


def recommend(
    *,
    prefer: str | None = None,
    min_accuracy: float | str | None = None,
    max_memory: float | str | None = None,
    max_process_memory: float | str | None = None,
    max_latency: float | str | None = None,
    max_p99: float | str | None = None,
    qps: float | str | None = None,
    max_params: float | str | None = None,
    device: str | Sequence[str] = (),
    runtime: str | None = None,
    precision: str | None = None,
    dataset: str = "imagenet-1k",
    among: str | None = None,
    pipeline: str | None = None,
    any_pipeline: bool = False,
    unfinished: bool = False,
    seeds: Literal["mean", "best"] = "mean",
    top: int = 5,
    with_weights: bool = False,
    study: Studies = (),
) -> "Recommendation":
    """Say which model to favor under limits, why, and how sure that is.

    `prefer` is accuracy (the default), throughput, latency, memory, params, energy or training-time. Limits are
    strings with a unit ("1GiB", "50ms", "30M"), or numbers in %, bytes, seconds or parameters; with `qps`,
    `max_p99` holds at this load in images per second. Models are ranked on the first of several devices; limits
    must hold on all. Without a `runtime` or a `precision`, each model counts in its best one. `with_weights` ranks
    only models with pretrained weights, by the accuracy of those weights. `among` is a pattern of names or
    families; "timm" or "timm:levit*" are timm's networks, ranked by the accuracy of their weights. If no model is
    best in most draws from the intervals, `favored` is None, `undecided_between` has the candidates, and
    `to_decide` what to measure.

    >>> import favor
    >>> answer = favor.recommend(prefer="params", min_accuracy=78)
    >>> answer.favored.metrics["top1"].value >= 78
    True
    """
    from favor.analyze import Limit, Request
    from favor.analyze import recommend as choose
    from favor.analyze.limits import under_load
    from favor.evidence import published_fronts, run_folders

    asked = {
        "min_accuracy": min_accuracy,
        "max_memory": max_memory,
        "max_process_memory": max_process_memory,
        "max_latency": max_latency,
        "max_p99": max_p99,
        "qps": qps,
        "max_params": max_params,
    }
    limits = under_load(Limit.parsed(name, value, name) for name, value in asked.items() if value is not None)
    devices, folders = (device,) if isinstance(device, str) else tuple(device), _folders(study)
    request = Request(
        prefer,
        limits,
        dataset,
        next(iter(devices), None),
        among,
        any_pipeline,
        top,
        pipeline,
        unfinished,
        seeds,
        with_weights,
        also_on=devices[1:],
        runtime=runtime,
        precision=precision,
    ).into(folders, run_folders(folders))
    table = _evidence(folders, devices, with_weights=with_weights, timm=request.of_timm)
    return choose(table, request, published_fronts())


def pareto(
    *metrics: str,
    everyone: bool = False,
    strict: bool = False,
    device: str | None = None,
    dataset: str = "imagenet-1k",
    among: str | None = None,
    pipeline: str | None = None,
    any_pipeline: bool = False,
    unfinished: bool = False,
    seeds: Literal["mean", "best"] = "mean",
    study: Studies = (),
) -> "pd.DataFrame":
    """The Pareto front as a table: the models that no other beats in one metric without losing in another.

    The default metrics are top1 and throughput. `probability` is the share of draws from the measurements' intervals
    in which a model is on the front. With `everyone`, the other models follow, with `on_front` false; `flag` says why
    an accuracy does not count. For every metric, columns such as `top1_low`, `top1_high`, `top1_flags` and
    `top1_setting` have the ends of its 95 % interval, the reasons to distrust it, and the conditions that it holds for.
    Accuracies of training runs of unequal length are refused.

    >>> import favor
    >>> front = favor.pareto("top1", "params")
    >>> list(front.columns[:7])
    ['model', 'img_size', 'top1', 'params', 'on_front', 'probability', 'flag']
    """
    import pandas as pd

    from favor.analyze import Scope, front_of

    wanted = list(metrics) or ["top1", "throughput"]
    table = _evidence(_folders(study), () if device is None else (device,))
    scope = Scope(dataset, pipeline, any_pipeline, unfinished, seeds)
    front = front_of(table, wanted, scope, device, among, strict=strict)
    result = front.result
    others = [point for point in result.points if not point.member] if everyone else []
    further = ("low", "high", "flags", "setting")
    return pd.DataFrame(
        [
            {
                "model": point.name,
                "img_size": point.img_size,
                **point.values,
                "on_front": point.member,
                "probability": point.probability,
                "flag": point.flag,
                **{
                    f"{metric}_{what}": getattr(reading, what)
                    for metric, reading in front.readings(point).items()
                    for what in further
                },
            }
            for point in (*result.front, *others)
        ],
        columns=[
            *("model", "img_size", *wanted, "on_front", "probability", "flag"),
            *(f"{metric}_{what}" for metric in wanted for what in further),
        ],
    )


def load_records(*studies: PathLike) -> "pd.DataFrame":
    """The records of study folders or record files as one table: a row per model and conditions, a column per metric.

    Lines that cannot be read are skipped with a warning.

    >>> import favor
    >>> table = favor.load_records("runs/quick")  # doctest: +SKIP
    """
    from favor.records.table import load

    return load(*studies)


def _run(asked: "ResolvedStudy", study: Path | None, **how: Any) -> tuple["Record", ...]:
    """Run a request as the commands do; Ctrl-C stops it."""
    from favor.study.running import run_request

    ended = run_request(asked, study, **how)
    ended.write_rest()
    if ended.stopped_by is not None:
        raise KeyboardInterrupt
    _tell_refused(ended.refused, ended.records)
    return tuple(ended.records)


def _tell_refused(refused: Sequence[RequestError], records: Sequence["Record"]) -> None:
    """Raise the first refusal if there are no records; else print all, so that the caller gets the records."""
    if refused and not records:
        raise refused[0]
    for refusal in refused:
        note(f"error: {refusal}")


def _evidence(studies: Sequence[Path], devices: Sequence[str], **which: bool) -> "pd.DataFrame":
    """The table that the commands decide by, with a warning for every line of a study that cannot be read."""
    from favor.evidence import load_evidence
    from favor.records.table import RecordsWarning

    table, problems = load_evidence(studies, devices, **which)
    for problem in problems:
        warnings.warn(str(problem), RecordsWarning, stacklevel=3)
    return table


def _check_names(options: Mapping[str, object], known: Collection[str]) -> None:
    for name in options:
        if name not in known:
            raise unknown_name("option", name, known, "choose from " + ", ".join(sorted(known)))


def _several(words: str | Iterable[str]) -> Iterator[str]:
    """The items of one or several comma-separated strings."""
    for word in [words] if isinstance(words, str) else words:
        yield from (part.strip() for part in word.split(",") if part.strip())


def _names(models: str | Iterable[str]) -> list[str]:
    from favor.zoo.matching import matching_models

    return matching_models([models] if isinstance(models, str) else list(models))


def _folders(study: Studies) -> list[Path]:
    return [Path(study)] if isinstance(study, str | Path) else [Path(folder) for folder in study]
