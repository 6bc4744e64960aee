"""Who is compared and by what: the candidates of a request, and the number (or published front) that orders them."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pandas as pd

from favor.analyze.comparison import Comparison
from favor.analyze.devices import has_place
from favor.analyze.guide import Constraint, GuideEntry, Phase
from favor.analyze.limits import Limit
from favor.analyze.metric_column import MetricColumn
from favor.analyze.origins import left_out_devices, left_out_machines, origin_notes
from favor.analyze.selection import fitting
from favor.analyze.setting import EAGER, Setting, column_of
from favor.analyze.trainings import LEAST_TO_COMPARE, Scope, own_on_other_datasets
from favor.errors import RequestError, unknown_name
from favor.metrics import METRICS
from favor.units import option_text
from favor.zoo.cards import TIMM

# What can be preferred, and the metrics that stand for it.
PREFERENCES: dict[str, tuple[str, ...]] = {
    "throughput": ("throughput",),
    "latency": ("latency_p50",),
    "memory": ("inference_memory",),
    "params": ("params",),
    "energy": ("energy_per_image",),
    "training-time": ("finetune_time", "train_hours_per_epoch", "train_step_time", "train_throughput"),
}

_ACCURACY = "accuracy"  # what is preferred where nothing is named

# The published front that stands for a preference where no number does.
_FRONT_OF: dict[str, tuple[Constraint, Phase]] = {
    "throughput": ("speed", "inference"),
    "latency": ("speed", "inference"),
    "memory": ("memory", "inference"),
    "training-time": ("speed", "training"),
}

PUBLISHED_DEVICE = "a100"  # on which the published fronts were measured
SIMULATED_ONES = "; a GPU such as --device t4 has simulated ones"


@dataclass(frozen=True)
class Request:
    """What the user asks for. `among` is a pattern for names or families, as "swin*"; `top` counts the favored one.

    With `with_weights`, or among networks of timm, the table holds the accuracies of pretrained weights, each of a
    pipeline of its own. Models are ranked on `device` and meet the limits on the devices in `also_on`, too. `study` is
    where measurements would go; `run_folders` are those of training runs. Without a `runtime` or a `precision` each
    model is considered in its best one.
    """

    prefer: str | None = None
    limits: tuple[Limit, ...] = ()
    dataset: str = "imagenet-1k"
    device: str | None = None
    among: str | None = None
    any_pipeline: bool = False
    top: int = 5
    pipeline: str | None = None
    unfinished: bool = False
    seeds: Literal["mean", "best"] = "mean"
    with_weights: bool = False
    also_on: tuple[str, ...] = ()
    study: str = "my-study"
    runtime: str | None = None
    precision: str | None = None
    run_folders: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.prefer == _ACCURACY:
            object.__setattr__(self, "prefer", None)
        if self.prefer is not None and self.prefer not in PREFERENCES:
            choices = (_ACCURACY, *PREFERENCES)
            raise unknown_name("preference", self.prefer, choices, f"choose from {', '.join(choices)}")
        if self.top < 1:
            raise RequestError(f"--top {self.top}: ask for at least one model, for example --top 5")
        if self.also_on and not any(METRICS[limit.metric].depends_on_device for limit in self.limits):
            raise RequestError(
                f"models are ranked on one device, {self.device}; others need a limit, for example --max-latency 50ms"
            )
        if self.with_weights and (self.dataset != Request.dataset or self.pipeline or self.any_pipeline):
            raise RequestError(
                f"--with-weights ranks by the accuracy of each model's own weights on {Request.dataset}; "
                "leave out --dataset, --pipeline and --any-pipeline"
            )

    def into(self, studies: Sequence[Path], run_folders: Iterable[Path] = ()) -> "Request":
        """The same request, with measurements suggested for the first of the user's own studies."""
        own = [str(study) for study in studies if not str(study).startswith("example:")]
        return replace(self, study=shlex.quote(own[0]), run_folders=tuple(map(str, run_folders))) if own else self

    def folder_of(self, run: str) -> str:
        """The folder of a training run, or its bare name if it is not in the studies.

        >>> Request(run_folders=("a/runs/vit_s16-seed0",)).folder_of("vit_s16-seed0")
        'a/runs/vit_s16-seed0'
        """
        return next((folder for folder in self.run_folders if Path(folder).name == run), run)

    @property
    def of_timm(self) -> bool:
        """Whether the candidates are timm's networks with their published weights.

        >>> Request(among="timm").of_timm, Request(among="timm:*", dataset="digits").of_timm
        (True, False)
        """
        plain = self.dataset == Request.dataset and not (self.pipeline or self.any_pipeline)
        return plain and self.among is not None and f"{self.among}:".startswith(TIMM)

    @property
    def by_weights(self) -> bool:
        """Whether models are ranked by the accuracy of published weights."""
        return self.with_weights or self.of_timm

    @property
    def scope(self) -> Scope:
        """Which accuracies are compared."""
        any_pipeline = self.any_pipeline or self.by_weights
        return Scope(self.dataset, self.pipeline, any_pipeline, self.unfinished, self.seeds)

    @property
    def metrics(self) -> tuple[str, ...]:
        """What decides, is limited or is shown."""
        limited = (limit.metric for limit in self.limits)
        return tuple(
            dict.fromkeys(["top1", "top1_change", "params", *PREFERENCES.get(self.prefer or "", ()), *limited])
        )

    def options(self) -> list[str]:
        """The words of the command line that ask for the same, the device and the number of models left out.

        >>> Request("memory", (Limit("min_accuracy", "top1", "min", 82.0),)).options()
        ['--prefer memory', '--min-accuracy 82']
        """
        words = [f"--{option} {value}" for option, value in self._asked().items()]
        devices = (self.device, *self.also_on) if self.also_on else ()
        words += [f"--device {shlex.quote(device)}" for device in devices if device]
        words += [f"--runtime {self.runtime}"] if self.runtime else []
        words += [f"--precision {self.precision}"] if self.precision else []
        words += [f"--dataset {shlex.quote(self.dataset)}"] if self.dataset != Request.dataset else []
        words += [f"--among {shlex.quote(self.among)}"] if self.among else []
        words += ["--any-pipeline"] if self.any_pipeline else []
        words += ["--with-weights"] if self.with_weights else []
        words += [f"--pipeline {shlex.quote(self.pipeline)}"] if self.pipeline else []
        words += ["--unfinished"] if self.unfinished else []
        return words + ([f"--seeds {self.seeds}"] if self.seeds != "mean" else [])

    def question(self) -> str:
        """Preference and limits as `favor measure --for` takes them.

        >>> Request("memory", (Limit("min_accuracy", "top1", "min", 82.0),)).question()
        'prefer=memory min-accuracy=82'
        """
        return " ".join(f"{option}={value}" for option, value in self._asked().items())

    def _asked(self) -> dict[str, str]:
        """Preference and limits by their options."""
        preferred = {"prefer": self.prefer} if self.prefer else {}
        limits = {limit.option.replace("_", "-"): option_text(limit.value, limit.unit) for limit in self.limits}
        at_load = next((limit.p99 for limit in self.limits if limit.p99 is not None), None)
        return preferred | limits | ({} if at_load is None else {"max-p99": option_text(at_load, "s")})


def candidates(comparison: Comparison, request: Request, run: Setting | None = None) -> pd.DataFrame:
    """One row per model and image size with an accuracy; a model that was never trained cannot be favored."""
    compared = comparison.compare_in(run)
    if request.among is None and len(compared.trained):
        return compared.trained
    fits = fitting(compared.rows, request.among)
    trained = fits[fits["top1"].notna()]
    if not len(trained):
        raise _untrained(comparison, fits, request, run)
    return trained


def _untrained(comparison: Comparison, rows: pd.DataFrame, request: Request, run: Setting | None) -> RequestError:
    """Why none of the models that fit can be favored: they were never trained, or training failed."""
    where, table = comparison.basis or request.dataset, comparison.table
    matching = "" if request.among is None else f" that matches {request.among!r}"
    if run is not None and run.is_quantized:
        remedy = "measure with --checkpoint RUN, or in another precision"
        return RequestError(f"no model{matching} has a known accuracy in int8 on {where}; {remedy}")
    failures = table[table["name"].isin(rows["name"]) & (column_of(table, "status").fillna("ok") != "ok")]
    failed = failures.dropna(subset=["reason"]) if "reason" in failures.columns else failures[:0]
    tried = f"; {failed['name'].iloc[0]} failed: {failed['reason'].iloc[0]}" if len(failed) else ""
    remedy = "" if request.scope.any_pipeline else "; --any-pipeline includes accuracies of other pipelines"
    why = f"no model{matching} has an accuracy on {where}{tried}{remedy}"
    return RequestError("; ".join([why, *own_on_other_datasets(table, request.dataset)]))


@dataclass(frozen=True)
class Unranked:
    """Models, by name and image size, that lack a comparable number of a metric: of how many candidates, and why."""

    metric: str
    models: frozenset[tuple[str, float]]
    of: int
    why: str

    def notes(self, rows: pd.DataFrame) -> list[str]:
        """A remark on them, except on those that have a number in the rows, for example in another runtime."""
        left = self.models - _models_of(rows[column_of(rows, self.metric).notna()])
        return [f"not ranked: {len(left)} of {self.of} models, {self.why}"] if left else []


def _models_of(rows: pd.DataFrame) -> frozenset[tuple[str, float]]:
    return frozenset(zip(rows["name"], rows["img_size"], strict=True))


@dataclass(frozen=True, eq=False)
class Ranking:
    """Candidates and what orders them: their numbers of `objective`, or a published front where there are none.

    The rows hold the objective and what the limits are about in one `setting` only; `unranked` are the models that are
    left out. `undecided` says why nothing can order them, in which case the objective is only what was asked for.
    """

    rows: pd.DataFrame
    objective: str
    ranked_by: Literal["numbers", "published front"]
    setting: Setting | None
    unranked: tuple[Unranked, ...]
    limits: tuple[Limit, ...] = ()
    undecided: str | None = None
    remarks: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks, then which models are left out and why."""
        return (*self.remarks, *(note for unranked in self.unranked for note in unranked.notes(self.rows)))


def rank(comparison: Comparison, request: Request, published_fronts: Sequence[GuideEntry]) -> Ranking:
    """What the candidates can be ordered by: the accuracy where nothing is preferred, else the cost or its front."""
    everyone = candidates(comparison, request)
    of_candidates = comparison.narrowed(everyone["name"])
    _require_a_run(of_candidates, request)
    if request.prefer is None:
        return _in_one_setting(of_candidates, request, "top1")
    # Of several metrics that stand for a preference, the user's own numbers go first, then what most models have.
    rankings = [_in_one_setting(of_candidates, request, metric) for metric in PREFERENCES[request.prefer]]
    best = max(rankings, key=lambda ranking: (_is_own(ranking), _count(ranking.rows, ranking.objective)))
    count = _count(best.rows, best.objective)
    if count >= LEAST_TO_COMPARE:
        is_known = best.rows[best.objective].notna()
        without = _models_of(best.rows[~is_known])
        unranked = Unranked(best.objective, without, len(best.rows), f"which have no {best.objective}")
        return replace(best, rows=best.rows[is_known], unranked=(*best.unranked, unranked))
    lack = lack_of_numbers(best.objective, count, request.device)
    if request.of_timm and request.device is None:
        lack += SIMULATED_ONES
    return _on_published_front(best, request, lack, published_fronts) or replace(
        best, undecided=f"{request.prefer} cannot be ranked: {lack}"
    )


def _require_a_run(comparison: Comparison, request: Request) -> None:
    """Refuse a device that only other models ran on and that resembles no other device."""
    device = request.device
    if device is None:
        return
    if not has_place(device, comparison.run_settings.devices) and device in comparison.devices:
        where = f"no model with an accuracy on {request.dataset} has run on {device}"
        remedy = "measure or simulate one that has an accuracy, such as vit_s16, in the study"
        raise RequestError("; ".join([where, remedy, *own_on_other_datasets(comparison.table, request.dataset)]))


def _in_one_setting(comparison: Comparison, request: Request, objective: str) -> Ranking:
    """All candidates, with the objective and the limits' numbers from one setting; numbers of others are counted."""
    involved = list(dict.fromkeys([objective, *(limit.metric for limit in request.limits)]))
    setting = comparison.run_setting(involved, request.device)
    rows = candidates(comparison, request, setting)
    compared = comparison.compare_in(setting)
    unranked = []
    for metric in involved:
        if metric in compared.elsewhere:
            where = compared.settings[metric] or setting or "one setting"
            others = _models_of(rows[compared.elsewhere[metric].loc[rows.index]])
            unranked.append(Unranked(metric, others, len(rows), f"whose {metric} is not from {where}"))
    return Ranking(rows, objective, "numbers", setting, tuple(unranked), request.limits)


def with_further_devices(ranking: Ranking, comparison: Comparison, request: Request) -> Ranking:
    """The ranking with the limits on further devices, and the models' numbers there as columns of their own.

    Only numbers of the very device count there: a model could meet a limit on a similar one alone.
    """
    running = [limit for limit in request.limits if METRICS[limit.metric].depends_on_device]
    metrics = list(dict.fromkeys(limit.metric for limit in running))
    for device in request.also_on:
        columns, notes = {}, []
        of_candidates = comparison.narrowed(ranking.rows["name"])
        if (setting := _setting_on(device, metrics, of_candidates)) is not None:
            compared = _in_same_runtime(ranking.rows, of_candidates, setting)
            for metric in metrics:
                for end in ("", "_low", "_high", "_source", "_setting", "_flags"):
                    if f"{metric}{end}" in compared.columns:
                        there = compared[f"{metric}{end}"].reindex(ranking.rows.index)
                        columns[f"{MetricColumn(metric, device)}{end}"] = there
            notes = [f"{note} (limits only)" for note in origin_notes(compared, metrics)]
        ranking = replace(
            ranking,
            rows=ranking.rows.assign(**columns),
            limits=(*ranking.limits, *(replace(limit, device=device) for limit in running)),
            remarks=(*ranking.remarks, *notes),
        )
    return ranking


def _in_same_runtime(ranked: pd.DataFrame, comparison: Comparison, setting: Setting) -> pd.DataFrame:
    """The ranked rows on a further device, each in its runtime and precision, where any model ran in these there."""
    runs = [
        column_of(ranked, "runtime").fillna(EAGER),
        column_of(ranked, "run_precision").fillna(setting.precision or ""),
    ]
    parts = []
    for (runtime, precision), rows in ranked.groupby(runs, dropna=False):
        same = replace(setting, runtime=None if runtime == EAGER else str(runtime))
        in_precision = replace(same, precision=str(precision))
        ran = comparison.run_settings.settings
        known = next((run for run in (in_precision, same) if run in ran), setting)
        models = rows[["name", "img_size"]].rename_axis("row").reset_index()
        parts.append(models.merge(comparison.compare_in(known).rows, on=["name", "img_size"]).set_index("row"))
    return pd.concat(parts)


def _setting_on(device: str, metrics: Sequence[str], comparison: Comparison) -> Setting | None:
    """The run setting on a device, and not on a similar one, in which all of the metrics or else one is known."""
    several = [list(metrics), *([metric] for metric in metrics)]
    found = (comparison.run_setting(some, device) for some in several)
    return next((setting for setting in found if setting is not None and setting.is_on(device)), None)


def left_out(comparison: Comparison, ranking: Ranking, request: Request) -> list[str]:
    """Remarks on the numbers of other machines and devices."""
    if ranking.setting is None:
        return []
    notes = []
    if request.device is None:
        of_candidates = comparison.narrowed(ranking.rows["name"]).models
        asked = dict.fromkeys([ranking.objective, *(limit.metric for limit in request.limits)])
        running = [metric for metric in asked if METRICS[metric].depends_on_device]
        notes = [left_out_devices(of_candidates, metric, ranking.setting) for metric in running]
    return [note for note in (*notes, left_out_machines(comparison.table, ranking.setting)) if note]


def _on_published_front(
    ranking: Ranking, request: Request, lack: str, published_fronts: Sequence[GuideEntry]
) -> Ranking | None:
    """The paper's advice in place of numbers, for its own device; None if it has none."""
    if request.dataset != Request.dataset:
        return None  # the fronts are of models that were trained on ImageNet
    advice = published_advice(request.prefer, request.device, lack, published_fronts)
    if advice is None:
        return None
    rows = ranking.rows[advice.holds(ranking.rows)]
    if not len(rows):
        return None
    return replace(ranking, rows=rows, objective="top1", ranked_by="published front", remarks=(advice.note,))


@dataclass(frozen=True)
class PublishedAdvice:
    """The families (with the image size) on the published front that stands for a preference, and what to say of it."""

    on_front: frozenset[tuple[str, int]]
    note: str

    def holds(self, rows: pd.DataFrame) -> list[bool]:
        """Which rows are models of these families at that size."""
        return [key in self.on_front for key in zip(rows["family"], rows["img_size"], strict=True)]


def published_advice(
    prefer: str | None, device: str | None, lack: str, published_fronts: Sequence[GuideEntry]
) -> PublishedAdvice | None:
    """The paper's advice in case of a `lack` of numbers; None for preferences and devices that it does not cover."""
    front = _FRONT_OF.get(prefer or "")
    if front is None or device not in (None, PUBLISHED_DEVICE):
        return None
    entries = (entry for entry in published_fronts if (entry.constraint, entry.phase) == front)
    note = (
        f"{lack}, so the paper's advice is used: the families on its {PUBLISHED_DEVICE.upper()} front of accuracy and "
        f"{front[0]} at {front[1]} (Table 7, which lists families, not sizes). Within these families models are "
        f"ordered by accuracy, not by {prefer}"
    )
    return PublishedAdvice(frozenset((entry.family, entry.img_size) for entry in entries), note)


def lack_of_numbers(metric: str, count: int, device: str | None) -> str:
    """The reason why models cannot be ranked by a metric that too few of them have.

    >>> lack_of_numbers("throughput", 0, "cpu")
    'no model has a number for throughput on cpu or a similar device'
    """
    where = f" on {device} or a similar device" if device else ""
    return f"{'only one model has' if count else 'no model has'} a number for {metric}{where}"


def _is_own(ranking: Ranking) -> bool:
    """Whether the user has measured enough models by the objective to compare them."""
    own = column_of(ranking.rows, f"{ranking.objective}_source") == "measured"
    return int((own & column_of(ranking.rows, ranking.objective).notna()).sum()) >= LEAST_TO_COMPARE


def _count(rows: pd.DataFrame, metric: str) -> int:
    return int(rows[metric].notna().sum()) if metric in rows.columns else 0
