"""The records behind every answer: the package's own, simulated ones, and the user's studies. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from favor.analyze import GuideEntry
    from favor.records import Problem, Record


def load_evidence(
    studies: Sequence[str | Path] = (),
    devices: Sequence[str] = (),
    *,
    every_device: bool = False,
    with_weights: bool = False,
    timm: bool = False,
) -> "tuple[pd.DataFrame, tuple[Problem, ...]]":
    """The wide table of all records, and the lines of the studies that could not be read.

    Simulated records of some devices, or of all built-in ones, are added on request. Measurements on these devices are
    listed under the requested names, not under those of the drivers. With `with_weights`, the accuracies are only those
    of published weights. With `timm`, the models are timm's networks, with the accuracies of their weights.
    """
    from favor.records.loading import with_shipped
    from favor.records.table import read_current, table_of

    simulated: tuple[Record, ...] = ()
    if devices or every_device:
        # Descriptions of devices take a fifth of a second to import.
        from favor.simulation.shipped import shipped_devices, shipped_records
        from favor.simulation.shipped_timm import shipped_timm_records

        simulated_devices = shipped_devices() if every_device else devices
        of_device = shipped_timm_records if timm else shipped_records
        simulated = tuple(record for name in simulated_devices for record in of_device(name))
    own = read_current(*studies)
    if timm:
        from favor.records.timm_candidates import timm_candidates

        table = table_of(timm_candidates(own.records, simulated))
    else:
        table = with_shipped(own.records, simulated)
    if with_weights and not timm:
        table = _with_accuracies_of_weights(table)
    for device in devices:
        table = _under_its_name(table, device)
    return table, own.problems


def _with_accuracies_of_weights(table: "pd.DataFrame") -> "pd.DataFrame":
    """The table with the accuracies of published checkpoints in place of all others."""
    import numpy as np
    import pandas as pd

    from favor.metrics import QUALITIES
    from favor.records.schema import CardFields
    from favor.records.table import table_of
    from favor.records.timm_results import accuracy_records
    from favor.zoo.checkpoints import ARCHITECTURES
    from favor.zoo.registry import card

    records = [
        record
        for name, architectures in ARCHITECTURES.items()
        for record in accuracy_records(name, CardFields.of(card(name)), architectures)
    ]
    others = table.assign(**{name: np.nan for name in QUALITIES if name in table.columns})
    return pd.concat([others, table_of(records)], ignore_index=True)


def run_folders(studies: Sequence[Path]) -> list[Path]:
    """The folders of the training runs in studies."""
    return [folder for study in studies for folder in sorted(study.glob("runs/*/"))]


@dataclass(frozen=True)
class BestWeights:
    """The most accurate pretrained weights for a model; `top1` is None if their accuracy is not published."""

    checkpoint: str | None
    top1: float | None
    img_size: int | None
    borrowed_from: str | None = None
    """The family whose weights the model takes, which were trained without reducing tokens."""

    def __str__(self) -> str:
        if self.borrowed_from:
            return f"{self.borrowed_from}'s"
        return f"{self.top1:.1f} % at {self.img_size} px"


def best_weights(model: str) -> BestWeights | None:
    """The best published weights for a model; None where there are none.

    >>> str(best_weights("resnet18")), str(best_weights("tome_r8_s16")), best_weights("linformer_s16")
    ('73.3 % at 224 px', "ViT's", None)
    >>> str(best_weights("evit_s16"))
    "DeiT's"
    """
    from favor.records.timm_results import checkpoint_accuracies
    from favor.zoo.checkpoints import BORROWED, architectures_of

    if model in BORROWED:
        return BestWeights(None, None, None, "DeiT" if BORROWED[model][0].startswith("deit") else "ViT")
    best = max(checkpoint_accuracies(architectures_of(model)), key=lambda one: one.top1, default=None)
    return None if best is None else BestWeights(best.checkpoint, best.top1, best.img_size)


def _under_its_name(table: "pd.DataFrame", device: str) -> "pd.DataFrame":
    from favor.analyze.setting import condition_of, recorded_devices
    from favor.errors import unknown_name
    from favor.simulation.shipped import is_called, shipped_devices

    longer = [name for name in shipped_devices() if name.startswith(f"{device}-")]
    if longer and device not in recorded_devices(table):
        raise unknown_name("device", device, longer, f"known: {', '.join(longer)}")
    names = condition_of(table, "device_name")
    called = [name for name in names.dropna().unique() if is_called(device, str(name))]
    return table.assign(device=table["device"].mask(names.isin(called), device)) if called else table


def published_fronts() -> "list[GuideEntry]":
    """The models on the benchmark's Pareto fronts: its Table 7."""
    from favor.analyze import guide_entries
    from favor.records.published import pareto_optimal

    return guide_entries(pareto_optimal())
