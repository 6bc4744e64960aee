"""A setting: the conditions that numbers must share to be compared."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from favor.analyze.devices import device_kind
from favor.metrics import METRICS

EAGER, QUANTIZED = "eager", "int8"
SOURCES = ("measured", "imported", "published", "simulated", "predicted")

QUALITY_CONDITIONS = (
    *("dataset", "pipeline", "pretraining", "pretraining_img_size", "pretraining_pipeline", "distillation"),
    *("epochs", "minutes", "precision"),
)
OWN_WEIGHTS = "own published weights"
"""The pretraining in a setting of models that are fine-tuned from published weights, each from its own."""
PUBLISHED_WEIGHTS = "published_weights"
"""The column of these weights."""
SEEDS = ("recipe.seed", "pretraining_seed")
"""Training runs that agree in all conditions of quality and differ in these are repetitions of one."""
RUN_CONDITIONS = (
    *("device", "precision", "layout", "runtime", "attention"),
    *("machine", "host", "device_name"),
)
# The wide table's column of a condition that has another name there.
_COLUMNS = {"host": "environment.host", "device_name": "environment.device_name"}


@dataclass(frozen=True)
class Setting:
    """How a quality was made, where and how a model ran, and what single metrics depend on; None is unknown.

    `machine` tells measurements on two computers apart; `host` and `device_name` are what people call one. `runtime` is
    None in PyTorch's eager mode: numbers that do not name a runtime are of it.

    >>> str(Setting(dataset="imagenet-1k", pipeline="wtf-deit3", pretraining="imagenet-21k", img_size=224))
    'imagenet-1k, pipeline wtf-deit3, pretrained on imagenet-21k, 224 px'
    """

    dataset: str | None = None
    pipeline: str | None = None
    pretraining: str | None = None
    pretraining_img_size: int | None = None
    pretraining_pipeline: str | None = None
    distillation: bool | None = None
    epochs: float | None = None
    minutes: float | None = None
    img_size: int | None = None
    device: str | None = None
    precision: str | None = None
    layout: str | None = None
    runtime: str | None = None
    attention: str | None = None
    machine: str | None = None
    host: str | None = None
    device_name: str | None = None
    batch_size: int | None = None
    processes: int | None = None
    micro_batch_size: int | None = None
    reference_batch: int | None = None
    fit_memory: float | None = None
    optimizer: str | None = None
    epoch_images: int | None = None
    grid_intensity: float | None = None
    price_per_hour: float | None = None
    p99_limit: float | None = None
    scenario: str | None = None

    def __eq__(self, other: object) -> bool:
        # Rows share their settings, and comparing every field of every row takes long.
        return self is other or (isinstance(other, Setting) and self._values == other._values)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def _hash(self) -> int:
        return hash(self._values)

    @cached_property
    def run(self) -> "Setting":
        """Where and how the model ran, without what only single metrics depend on."""
        return Setting(**{name: getattr(self, name) for name in RUN_CONDITIONS})

    @property
    def short(self) -> str:
        """The text without the machine, as an axis has room for it.

        >>> Setting(device="cpu", precision="fp32", machine="a processor, host lab-3").short
        'cpu, fp32'
        """
        return str(replace(self, machine=None)) or "device unknown"

    @property
    def runtime_name(self) -> str:
        """The runtime, eager mode included."""
        return self.runtime or EAGER

    @property
    def is_quantized(self) -> bool:
        """Whether the model runs in int8: the accuracy of the float model is not its own."""
        return self.precision == QUANTIZED

    def is_on(self, device: str) -> bool:
        """Whether it is a setting of the device or machine of that name."""
        return device in (self.device, self.machine, self.host, self.device_name)

    def __str__(self) -> str:
        """The conditions for people; those that are unknown, or as usual, are left out."""
        return self._written

    @cached_property
    def _written(self) -> str:
        texts = (_text(field.name, getattr(self, field.name)) for field in fields(self))
        return ", ".join(filter(None, texts))


_TEXTS = {
    "pipeline": "pipeline {}",
    "pretraining": "pretrained on {}",
    "pretraining_img_size": "pretrained at {} px",
    "pretraining_pipeline": "pretrained with {}",
    "epochs": "{} epochs",
    "minutes": "{} min of training",
    "img_size": "{} px",
    "attention": "{} attention",
    "machine": "machine {}",
    "host": "",
    "device_name": "",
    "batch_size": "batch {}",
    "processes": "{} processes",
    "micro_batch_size": "micro-batches of {}",
    "reference_batch": "reference batch {}",
    "fit_memory": "memory {}",
    "optimizer": "optimizer {}",
    "epoch_images": "epoch of {} images",
    "grid_intensity": "grid {} gCO2e/kWh",
    "price_per_hour": "price {} per hour",
    "p99_limit": "p99 within {} s",
    "scenario": "scenario {}",
}


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if name == "pretraining" and value == "none":
        return "not pretrained"
    if name == "pretraining" and value == OWN_WEIGHTS:
        return "each model from published weights of its own"
    if name == "distillation":
        return "distilled" if value else "no distillation"
    if value is True:
        return name
    if name == "runtime" and value == "compile":
        return "compiled"
    if name == "fit_memory" and isinstance(value, int | float):
        value = f"{value / 2**30:.12g} GiB"
    return _TEXTS.get(name, "{}").format(f"{value:.12g}" if isinstance(value, int | float) else value)


def column_of(table: pd.DataFrame, name: str) -> pd.Series:
    """A column, all unknown where the table does not have it."""
    return table[name] if name in table.columns else pd.Series(np.nan, index=table.index, dtype=object)


def condition_of(table: pd.DataFrame, name: str) -> pd.Series:
    """A condition of every row, as settings hold it."""
    values = column_of(table, _COLUMNS.get(name, name))
    if name in ("machine", "host", "device_name"):
        # Other people's measurements name a device but not a machine, since the user cannot run there.
        sources = column_of(table, "source")
        return values.where(sources.isna() | sources.isin(["measured", "predicted"]))
    if name == "img_size" and PUBLISHED_WEIGHTS in table.columns:
        return values.mask(table[PUBLISHED_WEIGHTS].notna())
    if name == "runtime":
        return values.mask((values == EAGER).fillna(False).astype(bool))
    if name == "processes":
        return values.mask((values == 1).fillna(False).astype(bool))
    if name == "micro_batch_size":
        return values.mask((values == column_of(table, "batch_size")).fillna(False).astype(bool))
    if name == "optimizer":
        return values.where(values.notna(), column_of(table, "recipe.optimizer"))
    if name == "epochs":
        # A run of so many minutes is over after as many epochs as it managed; an unfinished one aims at the recipe's.
        planned = column_of(table, "recipe.epochs")
        return planned.where(planned.notna(), values).where(column_of(table, "minutes").isna())
    return values


def numbered_settings(
    table: pd.DataFrame, conditions: Sequence[str], metric: str | None = None
) -> tuple[np.ndarray, list[Setting]]:
    """For every row the number of its setting as far as these conditions go, and the settings.

    With a `metric`, what it depends on is part of the setting.
    """
    known = known_conditions(table, conditions, metric)
    if known.empty:
        return np.zeros(len(table), dtype=int), [Setting()]
    numbers = known.groupby(list(known.columns), dropna=False, sort=False).ngroup()
    distinct = known[~numbers.duplicated().to_numpy()]
    names = [str(name) for name in known.columns]
    rows = (map(_plain, row) for row in distinct.itertuples(index=False, name=None))
    return numbers.to_numpy(), [Setting(**dict(zip(names, row, strict=True))) for row in rows]


def known_conditions(table: pd.DataFrame, conditions: Sequence[str], metric: str | None = None) -> pd.DataFrame:
    """These conditions of every row, and those that a metric depends on, as far as any row has them."""
    own = METRICS[metric].conditions if metric else ()
    columns = {name: condition_of(table, name) for name in (*conditions, *own)}
    if metric is not None and METRICS[metric].at_best_batch:
        columns["batch_size"] = columns["batch_size"].where(given_batch(table))
    if {"reference_batch", "micro_batch_size"} <= columns.keys():
        # A searched batch is every model's own: what is compared are steps of the reference batch.
        given = given_batch(table)
        columns["reference_batch"] = columns["reference_batch"].mask(given)
        columns["micro_batch_size"] = columns["micro_batch_size"].where(given)
    return pd.DataFrame({name: column for name, column in columns.items() if column.notna().any()}, index=table.index)


def _plain(value: Any) -> Any:
    """A cell without the types of pandas: whole numbers in a column with gaps are floats there."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float):
        return None if np.isnan(plain) else int(plain) if plain.is_integer() else plain
    return None if plain is pd.NA else plain


def in_run_setting(settings: pd.Series, run: Setting) -> np.ndarray:
    """Mask of the settings that are in a run setting, whatever else a metric depends on."""
    code, distinct = pd.factorize(settings)
    inside = [isinstance(setting, Setting) and setting.run == run for setting in distinct]
    return np.array([*inside, False], dtype=bool)[code]  # -1 stands for a row without a setting


def by_run_setting(table: pd.DataFrame) -> list[tuple[Setting, pd.DataFrame]]:
    """The rows of every run setting."""
    numbers, settings = numbered_settings(table, RUN_CONDITIONS)
    return [(setting, table[numbers == number]) for number, setting in enumerate(settings) if len(table)]


def given_batch(table: pd.DataFrame) -> np.ndarray:
    """Mask of the rows whose batch size was given, by a request or a recipe, and not searched."""
    requested = (column_of(table, "batch") == "given").fillna(False)
    return (requested | column_of(table, "recipe.batch_size").notna()).to_numpy(dtype=bool)


def on_device(table: pd.DataFrame, device: str | None) -> np.ndarray:
    """Mask of the rows that ran on a device or machine of that name; of those without any where None is asked."""
    if device is None:
        return column_of(table, "device").isna().to_numpy(dtype=bool)
    names = [condition_of(table, name) == device for name in ("device", "machine", "host", "device_name")]
    return np.logical_or.reduce([name.fillna(False).to_numpy(dtype=bool) for name in names])


def on_like_device(table: pd.DataFrame, device: str | None) -> np.ndarray:
    """Mask of the rows that ran on a device of the same known kind."""
    kind, devices = device_kind(device), column_of(table, "device")
    alike = [name for name in devices.unique() if device_kind(name) == kind]
    return devices.isin(alike).to_numpy() & (kind != "unknown")


def recorded_devices(table: pd.DataFrame) -> list[str]:
    """The devices and machines that the records name."""
    names = (condition_of(table, name).dropna().unique() for name in ("device", "machine", "device_name", "host"))
    return list(dict.fromkeys(str(name) for column in names for name in column))


def source_order(sources: pd.Series) -> np.ndarray:
    """Place of each source in `SOURCES`; one that is not known comes last."""
    order = {source: position for position, source in enumerate(SOURCES)}
    return sources.map(order).fillna(len(SOURCES)).to_numpy(dtype=float)


def models_by_machine(table: pd.DataFrame) -> dict[str, int]:
    """How many models were measured on each machine, the busiest first."""
    measured = table[["name"]].assign(machine=condition_of(table, "machine")).dropna(subset=["machine"])
    counts = measured.groupby("machine")["name"].nunique().sort_values(ascending=False, kind="stable")
    return {str(name): int(count) for name, count in counts.items()}
