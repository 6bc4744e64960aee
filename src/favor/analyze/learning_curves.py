"""Learning curves: the accuracy of each training over epochs, images, steps, device hours, energy and money.

Paper: Dehghani et al., "The Efficiency Misnomer", ICLR 2022, section 2.1, Figures 2 and 3.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Literal

import numpy as np
import pandas as pd

from favor.analyze.selection import complete_rows, numbers_or_nan
from favor.analyze.setting import QUALITY_CONDITIONS, RUN_CONDITIONS, SEEDS, column_of, condition_of
from favor.errors import RequestError

BudgetName = Literal["epochs", "images", "steps", "hours", "energy", "money"]


@dataclass(frozen=True)
class Budget:
    """What a training run spends: its title, its unit, and whether it depends on the machine."""

    title: str
    unit: str
    depends_on_machine: bool = False


BUDGETS: Mapping[BudgetName, Budget] = {
    "epochs": Budget("Epochs", "epochs"),
    "images": Budget("Images", "img"),
    "steps": Budget("Steps", "steps"),
    "hours": Budget("Device time", "h", True),
    "energy": Budget("Energy", "J", True),
    "money": Budget("Money", "currency", True),
}

# What may change when a run is resumed. A machine's name includes its host and device.
_WAYS = ("device", "machine", "processes", "micro_batch_size")
# Two runs that agree in these and in all values of the recipe but the seed are seeds of one training.
_OF_TRAINING = tuple(
    name
    for name in dict.fromkeys((*QUALITY_CONDITIONS, "img_size", "batch_size", *RUN_CONDITIONS, *_WAYS))
    if name not in ("epochs", "host", "device_name")
)
_NOT_OF_RECIPE = (*SEEDS, "recipe.data")


@dataclass(frozen=True)
class CurvePoint:
    """An evaluation: the top-1 accuracy in %, and what was spent until then; None is unknown.

    Epochs of training data, images, optimizer steps, device hours, energy in J and money.
    """

    top1: float
    epochs: float
    images: float | None
    steps: float | None
    hours: float | None
    energy: float | None
    money: float | None = None


@dataclass(frozen=True)
class LearningCurve:
    """A learning curve: the mean over the runs that differ only in the seed, at each evaluation.

    `changes` are the conditions in which it differs from other training runs of the model, such as
    ("weight_decay", "0.3"); `run` names the model with them.
    `unfinished_seeds` are left out if any seed has finished.
    """

    run: str
    name: str
    dataset: str
    pipeline: str
    machine: str
    seeds: int
    unfinished_seeds: int
    finished: bool
    planned_epochs: float | None
    changes: tuple[tuple[str, str], ...]
    grid_intensity: float | None
    points: tuple[CurvePoint, ...]

    @property
    def last(self) -> CurvePoint:
        """The last evaluation."""
        return self.points[-1]


def learning_curves(
    table: pd.DataFrame, dataset: str | None = None, price_per_hour: float | None = None
) -> tuple[LearningCurve, ...]:
    """The learning curves of the training runs on a dataset, in the order of their first records.

    Without a `dataset`, all training runs must be on the same one. Money is device hours times the given price, or the
    price in the records.
    """
    trained = _trained(table)
    if not len(trained):
        raise RequestError("the records have no training runs; train with `favor train NAME --study DIR`")
    names = list(dict.fromkeys(str(name) for name in trained["dataset"]))
    if dataset is None and len(names) > 1:
        raise RequestError(f"the training runs are on several datasets; choose with --dataset: {', '.join(names)}")
    chosen = dataset or names[0]
    if chosen not in names:
        raise RequestError(f"no training run is on {chosen}; training runs are on {', '.join(names)}")
    trained = _joined(trained[trained["dataset"] == chosen])
    conditions = _conditions(trained)
    number = conditions.assign(name=trained["name"]).groupby(["name", *conditions], dropna=False, sort=False).ngroup()
    changes = _changes(trained["name"], conditions, number)
    return tuple(_curve(changes[at], rows, price_per_hour) for at, rows in trained.groupby(number, sort=False))


def that_differ_only_in(
    curves: Sequence[LearningCurve], conditions: Collection[str]
) -> list[tuple[LearningCurve, ...]]:
    """Groups of two or more training runs of one model that differ in some of these conditions and in nothing else."""
    alike: dict[tuple[object, ...], list[LearningCurve]] = {}
    for curve in curves:
        others = tuple(change for change in curve.changes if change[0] not in conditions)
        alike.setdefault((curve.name, others), []).append(curve)
    return [tuple(group) for group in alike.values() if len(group) > 1]


def trained_datasets(table: pd.DataFrame) -> list[str]:
    """The datasets that something was trained on, those with the most evaluations first."""
    return [str(name) for name in _trained(table)["dataset"].value_counts().index]


def _trained(table: pd.DataFrame) -> pd.DataFrame:
    """The evaluations of favor's own trainings."""
    if not {"top1", "epochs", "final", "dataset"} <= set(table.columns):
        return table.assign(dataset=column_of(table, "dataset"))[:0]
    usable, _ = complete_rows(table, ["top1", "epochs"])
    return usable[usable["final"].notna() & (column_of(usable, "source") == "measured")]


def _joined(trained: pd.DataFrame) -> pd.DataFrame:
    """The evaluations, in which a run that was resumed in another way names all its ways, as in `4, then 8` processes.

    Evaluations in another way continue a run that is unfinished and was evaluated at an earlier epoch.
    """
    whole = {"processes": 1, "micro_batch_size": column_of(trained, "batch_size")}
    ways = pd.DataFrame({name: column_of(trained, name).astype(object) for name in _WAYS}).fillna(whole)
    trained = trained.assign(**ways)
    way = ways.groupby(list(_WAYS), dropna=False).ngroup()
    seeds = {name: column_of(trained, name) for name in ("name", *SEEDS)}
    alike = _conditions(trained).drop(columns=list(_WAYS), errors="ignore").assign(**seeds)
    for rows in alike.groupby(list(alike), dropna=False, sort=False).groups.values():
        runs: list[list[int]] = []
        for of_way, stretch in groupby(rows, lambda row: way[row]):
            evaluations = list(stretch)
            same = (run for run in runs if (way[run] == of_way).any())
            first = trained["epochs"][evaluations].min()
            begun = (run for run in runs if trained["epochs"][run].min() < first and not trained["final"][run].any())
            run = next(same, None) or next(begun, None)
            runs.append(evaluations) if run is None else run.extend(evaluations)
        for run in runs:
            for name in _WAYS:
                names = list(dict.fromkeys(_text(value) for value in ways[name][run]))
                if len(names) > 1:
                    trained.loc[run, name] = ", then ".join(names)
    return trained


def _conditions(trained: pd.DataFrame) -> pd.DataFrame:
    """The conditions that make a training, one column each; those that no row has are left out."""
    recipe = [name for name in trained.columns if name.startswith("recipe.") and name not in _NOT_OF_RECIPE]
    as_they_are = ("processes", "micro_batch_size", *recipe)
    columns = {name: condition_of(trained, name) for name in _OF_TRAINING}
    columns |= {name: trained[name] for name in as_they_are}
    known = {name: column for name, column in columns.items() if column.notna().any()}
    return pd.DataFrame(known, index=trained.index)


def _changes(names: pd.Series, conditions: pd.DataFrame, number: pd.Series) -> dict[int, tuple[tuple[str, str], ...]]:
    """For each training run (by number), the conditions in which it differs from the model's other runs."""
    firsts = conditions[~number.duplicated()].assign(number=number, name=names)
    changes: dict[int, tuple[tuple[str, str], ...]] = {}
    for _, runs in firsts.groupby("name", sort=False):
        differing = [str(column) for column in conditions if runs[column].nunique(dropna=False) > 1]
        # A changed recipe also changes the name of the pipeline.
        differing = [column for column in differing if column != "pipeline"] or differing
        for row in runs.to_dict("records"):
            changed = ((column.removeprefix("recipe."), _text(row[column])) for column in differing)
            changes[int(row["number"])] = tuple(changed)
    return changes


def _text(value: object) -> str:
    if value is None or value is pd.NA or value != value:
        return "none"
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _curve(changes: tuple[tuple[str, str], ...], rows: pd.DataFrame, price_per_hour: float | None) -> LearningCurve:
    of_seed = rows.groupby([column_of(rows, name) for name in SEEDS], dropna=False, sort=False)
    seeds = [_spent(one, price_per_hour) for _, one in of_seed]
    finished = [one for one in seeds if one["final"].iloc[-1]]
    used = finished or seeds
    first = rows.iloc[0]
    settings = ", ".join(f"{name}={value}" for name, value in changes)
    label = f"{first['name']} ({settings})" if settings else str(first["name"])
    planned = condition_of(rows, "epochs").iloc[0] if column_of(rows, "minutes").isna().all() else None
    return LearningCurve(
        run=label,
        name=str(first["name"]),
        dataset=str(first["dataset"]),
        pipeline=str(first.get("pipeline")),
        machine=str(first.get("machine")),
        seeds=len(used),
        unfinished_seeds=len(seeds) - len(finished),
        finished=bool(finished),
        planned_epochs=None if planned is None or pd.isna(planned) else float(planned),
        changes=changes,
        grid_intensity=None if np.isnan(intensity := numbers_or_nan(rows, "grid_intensity")[-1]) else float(intensity),
        points=_mean_over_seeds(label, used),
    )


def _spent(rows: pd.DataFrame, price_per_hour: float | None) -> pd.DataFrame:
    """The evaluations of one seed in order, with what was spent until each.

    Device hours and energy are summed over the epochs: their totals are recorded at the end only.
    """
    rows = rows.drop_duplicates("epochs", keep="last").sort_values("epochs")
    epochs = rows["epochs"].to_numpy(dtype=float)
    since = np.diff(epochs, prepend=0.0)
    epoch_images = numbers_or_nan(rows, "epoch_images")
    images = epochs * epoch_images
    hours = np.cumsum(since * numbers_or_nan(rows, "train_device_hours_per_epoch"))
    return pd.DataFrame(
        {
            "top1": rows["top1"].to_numpy(dtype=float),
            "epochs": epochs,
            "images": images,
            "steps": images / numbers_or_nan(rows, "batch_size"),
            "hours": hours,
            "energy": np.cumsum(since * epoch_images * numbers_or_nan(rows, "train_energy_per_image")),
            "money": hours * (numbers_or_nan(rows, "price_per_hour") if price_per_hour is None else price_per_hour),
            "final": rows["final"].to_numpy(dtype=bool),
        }
    )


def _mean_over_seeds(label: str, seeds: Sequence[pd.DataFrame]) -> tuple[CurvePoint, ...]:
    """The evaluations that all seeds have: after the same epoch, or at the end of a run that is limited by time."""
    every = pd.concat([one.assign(at=one["epochs"].mask(one["final"], np.inf)) for one in seeds])
    shared = every[every.groupby("at")["top1"].transform("size") == len(seeds)].drop(columns="final")
    if not len(shared):
        raise RequestError(f"{label}: its {len(seeds)} seeds have no evaluation after the same epoch")
    # A sum over seeds of which one does not know a cost is unknown.
    means = shared.groupby("at").sum(min_count=len(seeds)) / len(seeds)
    return tuple(
        CurvePoint(**{name: None if np.isnan(value) else float(value) for name, value in row.items()})  # type: ignore[arg-type]
        for row in means.to_dict("records")
    )


def frame_of(curves: Sequence[LearningCurve]) -> pd.DataFrame:
    """One row per run and evaluation, with the columns `run`, `machine`, `finished`, `top1` and the budgets."""
    rows = [
        {"run": curve.run, "machine": curve.machine, "finished": curve.finished, **asdict(point)}
        for curve in curves
        for point in curve.points
    ]
    return pd.DataFrame(rows).astype(dict.fromkeys(("top1", *BUDGETS), float))
