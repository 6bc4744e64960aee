"""Under what conditions a number was found, and the one setting whose numbers may be ranked together.

What runs on a device is comparable only within one setting: device, precision, layout, compilation and machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from favor.analyze.devices import device_kind, require_known
from favor.analyze.selection import numbers
from favor.metrics import METRICS

SOURCES = ("measured", "imported", "published", "simulated")

COUNTED = frozenset(
    {
        *("params", "params_trainable", "params_paper", "model_size_paper", "weight_bytes"),
        *("macs_matmul", "macs", "flops", "ops_mixed", "activations", "bytes_moved"),
    }
)
QUALITIES = frozenset({"top1", "top5", "loss", "train_loss"})

RUN_CONDITIONS = ("device", "precision", "layout", "compile", "machine")
QUALITY_CONDITIONS = ("dataset", "pipeline", "pretraining", "distillation")
# What else a metric depends on, so that numbers under two of them are two settings.
OWN_CONDITIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("throughput", "energy_per_image"), ("batch_size",)),
    **dict.fromkeys(("train_throughput", "train_energy_per_image"), ("batch_size",)),
    **dict.fromkeys(("train_memory", "train_step_time", "train_step_time_end_to_end"), ("batch_size",)),
    **dict.fromkeys(("memory_reserved", "memory_process"), ("task", "batch_size")),
    "max_batch_size": ("fit_memory",),
    "train_max_batch_size": ("fit_memory", "optimizer"),
    "train_hours_per_epoch": ("epoch_images",),
    "carbon_per_image": ("grid_intensity", "batch_size"),
    "train_carbon_per_epoch": ("grid_intensity", "epoch_images"),
    "money_per_image": ("price_per_hour", "batch_size"),
    "train_money_per_epoch": ("price_per_hour", "epoch_images"),
}
# These are at the best batch size by definition, and a batch that was given instead is another setting. What others
# measured they have taken at the batch that they found best, whatever it was.
AT_BEST_BATCH = frozenset({"throughput", "energy_per_image", "carbon_per_image", "money_per_image"})
_BATCH_IF_GIVEN = AT_BEST_BATCH | {"train_throughput", "train_energy_per_image"}
_OWN_WORDS = {
    "task": "phase",
    "batch_size": "batch",
    "fit_memory": "memory",
    "optimizer": "optimizer",
    "epoch_images": "epoch",
    "grid_intensity": "grid",
    "price_per_hour": "price",
}
LEAST_TO_COMPARE = 2  # one model with a number is no comparison


@dataclass(frozen=True)
class RunSetting:
    """The conditions under which models ran; `text` is how the `<metric>_setting` columns write them."""

    text: str
    device: str | None
    machine: str | None

    def is_on(self, device: str) -> bool:
        """Whether it is a setting of the device or machine of that name."""
        return device == self.device or device in names_of(self.machine)

    def covers(self, settings: pd.Series) -> np.ndarray:
        """Mask of the texts that are this setting, whatever a metric's own conditions are."""
        texts = settings.fillna("").astype(str)
        starts = tuple(f"{self.text}, {word} " if self.text else f"{word} " for word in _OWN_WORDS.values())
        return (settings.notna() & ((texts == self.text) | texts.str.startswith(starts))).to_numpy(dtype=bool)


def runs(metric: str) -> bool:
    """Whether a metric is what a device did, and not counted or learned.

    >>> runs("throughput"), runs("params"), runs("top1")
    (True, False, False)
    """
    return metric not in COUNTED | QUALITIES


def run_setting(table: pd.DataFrame, metrics: Sequence[str] = (), device: str | None = None) -> RunSetting | None:
    """The setting to compare models in by all the metrics together, or by any where none is named.

    It is on the device (or machine) asked for where that has numbers, else on a like one; then the one with the best
    source, of the machine on which most models were measured, and with the most models. None where no row ran.
    """
    require_known(device, recorded_devices(table))
    asked = [name for name in metrics if runs(name)]
    columns = [name for name in (asked or METRICS) if name in table.columns and runs(name)]
    succeeded = table[table["status"] == "ok"] if "status" in table.columns else table
    if (metrics and not asked) or not columns:
        return None
    known = pd.DataFrame({name: np.isfinite(numbers(succeeded, name)) for name in columns}, index=succeeded.index)
    ran = succeeded[known.any(axis=1)]
    if device is not None:
        ran = ran[on_device(ran, device) | _like(ran, device)]
    if not len(ran):
        return None
    popularity = _models_by_machine(succeeded)
    texts, same = setting_text(ran, RUN_CONDITIONS), pd.Series(on_device(ran, device), index=ran.index)

    def place(group: tuple[str, pd.DataFrame]) -> tuple[bool, bool, bool, float, int, int, int, str]:
        text, rows = group
        of_model = known.loc[rows.index].groupby(rows["name"]).any()
        # A column that is wanted and that the table does not have is known of no model; the others still decide.
        models = int((of_model.all(axis=1) if asked else of_model.any(axis=1)).sum())
        return (
            models == 0,
            device is not None and not same[rows.index].any(),
            models < LEAST_TO_COMPARE,
            float(source_order(column_of(rows, "source")).min()),
            -popularity.get(_first(machines_of(rows)) or "", 0),
            -models,
            -int(of_model[columns[0]].sum()),
            text,
        )

    text, rows = min(((str(text), rows) for text, rows in ran.groupby(texts)), key=place)
    return RunSetting(text, _first(column_of(rows, "device")), _first(machines_of(rows)))


def left_out_machines(table: pd.DataFrame, setting: RunSetting | None) -> str | None:
    """What to say of measurements on other machines than the setting's; None where there are none."""
    if setting is None:
        return None
    others = {name: count for name, count in _models_by_machine(table).items() if name != setting.machine}
    if not others:
        return None
    counted = ", ".join(f"{count} model{'' if count == 1 else 's'} on {name}" for name, count in others.items())
    taken = f"of machine {setting.machine}" if setting.machine else f"in setting {setting.text or 'unknown'}"
    return f"numbers are those {taken}; left out, because machines do not compare: {counted} (--device NAME chooses)"


def left_out_devices(table: pd.DataFrame, metric: str, setting: RunSetting) -> str | None:
    """What to say of other devices that could decide as well, where the setting is nobody's own; None without any."""
    if setting.machine is not None or metric not in table.columns:
        return None
    known = table.assign(device=column_of(table, "device")).dropna(subset=["device", metric])
    models = known[known["device"] != setting.device].groupby("device", sort=False)["name"].nunique()
    others = models[models >= LEAST_TO_COMPARE].sort_values(ascending=False, kind="stable")
    if not len(others):
        return None
    told = ", ".join(f"{device} ({count} models)" for device, count in others.items())
    return f"{metric} is known on other devices, too: {told}; --device NAME chooses"


def where_from(rows: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    """What to say of the origin of assembled numbers that a device gave, by metric."""
    told = []
    for metric in metrics:
        known = rows[rows[metric].notna()] if runs(metric) and metric in rows.columns else rows[:0]
        if len(known):
            source, setting = (known[f"{metric}_{what}"].iloc[0] for what in ("source", "setting"))
            told.append(f"{metric}: {source}; {setting}")
    return told


def recorded_devices(table: pd.DataFrame) -> list[str]:
    """The devices and machines that the records name."""
    devices = [str(name) for name in column_of(table, "device").dropna().unique()]
    machines = [name for machine in machines_of(table).dropna().unique() for name in names_of(machine)]
    return list(dict.fromkeys([*devices, *machines]))


def on_device(table: pd.DataFrame, device: str | None) -> np.ndarray:
    """Mask of the rows that ran on a device or machine of that name; of those without any where None is asked."""
    devices = column_of(table, "device")
    if device is None:
        return devices.isna().to_numpy(dtype=bool)
    on_machine = machines_of(table).map(lambda machine: device in names_of(machine)).to_numpy(dtype=bool)
    return (devices == device).fillna(False).to_numpy(dtype=bool) | on_machine


def _like(table: pd.DataFrame, device: str) -> np.ndarray:
    kind = device_kind(device)
    kinds = column_of(table, "device").map(device_kind, na_action=None).to_numpy()
    return (kinds == kind) & (kind != "unknown")


def machines_of(table: pd.DataFrame) -> pd.Series:
    """The machine of each row that was measured: what others measured has a device, and nobody can run there again."""
    sources = column_of(table, "source")
    return column_of(table, "machine").where(sources.isna() | (sources == "measured"))


def names_of(machine: object) -> tuple[str, ...]:
    """What a machine may be called: all that is told of it, or one part of that.

    >>> names_of("a processor, host lab-3")
    ('a processor, host lab-3', 'a processor', 'lab-3')
    """
    if not isinstance(machine, str):
        return ()
    return tuple(dict.fromkeys([machine, *(part.removeprefix("host ") for part in machine.split(", "))]))


def column_of(table: pd.DataFrame, name: str) -> pd.Series:
    """A column, all unknown where the table does not have it."""
    return table[name] if name in table.columns else pd.Series(np.nan, index=table.index, dtype=object)


def source_order(sources: pd.Series) -> np.ndarray:
    """Place of each source in `SOURCES`; one that is not known comes last."""
    return (
        sources.map({source: place for place, source in enumerate(SOURCES)}).fillna(len(SOURCES)).to_numpy(dtype=float)
    )


def given_batch(table: pd.DataFrame) -> np.ndarray:
    """Mask of the rows whose batch size was given, and not searched."""
    return (column_of(table, "batch") == "given").fillna(False).to_numpy(dtype=bool)


def run_setting_text(table: pd.DataFrame, metric: str) -> pd.Series:
    """The setting of each row for a metric that runs: how it ran, and what else this metric depends on."""
    if metric in _BATCH_IF_GIVEN:
        table = table.assign(batch_size=column_of(table, "batch_size").where(given_batch(table)))
    return setting_text(table, (*RUN_CONDITIONS, *OWN_CONDITIONS.get(metric, ())))


def setting_text(table: pd.DataFrame, conditions: Sequence[str]) -> pd.Series:
    """The conditions of each row as a short text."""
    texts = pd.Series("", index=table.index, dtype=object)
    for name in conditions:
        if name not in table.columns:
            continue
        part = (machines_of(table) if name == "machine" else table[name]).map(
            lambda value, name=name: _condition_text(name, value)
        )
        part = part.astype(object)  # a table without rows keeps the type of its column
        joint = np.where((texts != "") & (part != ""), ", ", "")
        texts = texts + joint + part
    return texts


def _condition_text(name: str, value: object) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)) or value is False:
        return ""
    if value is True:
        return {"distillation": "distilled", "compile": "compiled"}.get(name, name)
    if name == "machine":
        return f"machine {value}"
    shown = f"{value:.12g}" if isinstance(value, int | float) else str(value)
    return f"{_OWN_WORDS[name]} {shown}" if name in _OWN_WORDS else shown


def _models_by_machine(table: pd.DataFrame) -> dict[str, int]:
    """How many models were measured on each machine, the busiest first."""
    measured = table.assign(machine=machines_of(table)).dropna(subset=["machine"])
    counts = measured.groupby("machine")["name"].nunique().sort_values(ascending=False, kind="stable")
    return {str(name): int(count) for name, count in counts.items()}


def _first(values: pd.Series) -> str | None:
    known = values.dropna()
    return str(known.iloc[0]) if len(known) else None
