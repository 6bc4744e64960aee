"""The records behind every answer: the package's own, simulated ones, and the user's studies. Imports no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from favor.analyze import GuideEntry
    from favor.records import Problem, Record


def load_evidence(
    studies: Sequence[str | Path] = (), device: str | None = None, *, every_device: bool = False
) -> "tuple[pd.DataFrame, tuple[Problem, ...]]":
    """The wide table of all records, and the lines of the studies that could not be read.

    Simulated records of one device, or of all built-in devices, are added on request. Measurements on that device are
    listed under the requested name, whatever its driver calls it.
    """
    from favor.records import load_everything

    simulated: tuple[Record, ...] = ()
    if device is not None or every_device:
        # Descriptions of devices take a fifth of a second to import.
        from favor.simulation.shipped import shipped_devices, shipped_records

        devices = (device,) if device is not None else shipped_devices()
        simulated = tuple(record for name in devices for record in shipped_records(name))
    table, problems = load_everything(studies, simulated)
    return (table if device is None else _under_its_name(table, device)), problems


def _under_its_name(table: "pd.DataFrame", device: str) -> "pd.DataFrame":
    from favor.analyze.setting import condition_of
    from favor.simulation.shipped import is_called

    names = condition_of(table, "device_name")
    called = [name for name in names.dropna().unique() if is_called(device, str(name))]
    return table.assign(device=table["device"].mask(names.isin(called), device)) if called else table


def published_fronts() -> "list[GuideEntry]":
    """The models on the benchmark's Pareto fronts: its Table 7."""
    from favor.analyze import guide_entries
    from favor.records.published import pareto_optimal

    return guide_entries(pareto_optimal())
