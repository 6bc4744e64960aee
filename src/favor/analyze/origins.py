"""Where the numbers of a comparison come from, and which were left out, in words."""

from collections.abc import Sequence

import pandas as pd

from favor.analyze.metric_column import MetricColumn
from favor.analyze.setting import Setting, column_of, models_by_machine
from favor.analyze.trainings import LEAST_TO_COMPARE
from favor.metrics import METRICS
from favor.text import plural

EXTRAPOLATED = "extrapolated"


def left_out_machines(table: pd.DataFrame, setting: Setting | None) -> str | None:
    """A note on measurements from machines other than the setting's; None if there are none."""
    if setting is None:
        return None
    others = {name: count for name, count in models_by_machine(table).items() if name != setting.machine}
    if not others:
        return None
    counted = ", ".join(f"{plural(count, 'model')} on {name}" for name, count in others.items())
    used = f"from machine {setting.machine}" if setting.machine else f"from setting {setting or 'unknown'}"
    return f"numbers are {used}; left out, since machines are not comparable: {counted} (choose with --device NAME)"


def left_out_devices(table: pd.DataFrame, metric: str, setting: Setting) -> str | None:
    """A note on other devices with this metric, if the setting is not the user's own machine; None without any."""
    if setting.machine is not None or metric not in table.columns:
        return None
    known = table.assign(device=column_of(table, "device")).dropna(subset=["device", metric])
    models = known[known["device"] != setting.device].groupby("device", sort=False)["name"].nunique()
    others = models[models >= LEAST_TO_COMPARE].sort_values(ascending=False, kind="stable")
    if not len(others):
        return None
    counted = ", ".join(f"{device} ({count} models)" for device, count in others.items())
    return f"{metric} is also known on other devices: {counted}; choose with --device NAME"


def shown_source(metric: str, source: str | None, low: float | None, high: float | None) -> str | None:
    """The source of a number as tables show it: what was measured with smaller batches is extrapolated.

    >>> shown_source("train_memory_reference_batch", "measured", 9e9, 11e9)
    'extrapolated'
    >>> shown_source("train_memory_reference_batch", "measured", 9e9, 9e9)
    'measured'
    """
    known = METRICS.get(MetricColumn.named(metric).name)
    is_extrapolated = known is not None and known.extrapolated and source == "measured"
    return EXTRAPOLATED if is_extrapolated and (low is None or low != high) else source


def shown_sources(rows: pd.DataFrame, metric: str) -> pd.Series:
    """The sources of a metric of assembled rows as tables show them."""
    sources = rows[f"{metric}_source"]
    if metric not in METRICS or not METRICS[metric].extrapolated:
        return sources
    numbers = zip(sources, column_of(rows, f"{metric}_low"), column_of(rows, f"{metric}_high"), strict=True)
    return pd.Series([shown_source(metric, *number) for number in numbers], index=rows.index, dtype=object)


def said_source(source: str) -> str:
    """Whether a number was measured, published or simulated: an imported one was published.

    >>> said_source("imported")
    'published'
    """
    return "published" if source == "imported" else source


def origin_notes(rows: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    """The source and setting of each metric that depends on a device."""
    notes = []
    for metric in metrics:
        if METRICS[metric].depends_on_device and metric in rows.columns and rows[metric].notna().any():
            known = rows[rows[metric].notna()]
            sources, settings = shown_sources(known, metric), known[f"{metric}_setting"]
            for setting in settings.unique() if "runtime" in rows.columns else settings.iloc[:1]:
                said = dict.fromkeys(sources[settings == setting])
                notes.append(f"{metric}: {' and '.join(map(str, said))}; {setting}")
    return notes
