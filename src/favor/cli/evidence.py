"""The options that choose records and settings, and the table of records that every decision starts from."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from favor.evidence import load_evidence
from favor.terminal import note

if TYPE_CHECKING:
    import pandas as pd

    from favor.analyze import Comparison

Studies = Annotated[
    list[Path] | None,
    typer.Option("--study", metavar="DIR", help="Add the records of this study; repeatable."),
]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="Compare on this device or machine, such as cpu.")]
Dataset = Annotated[str, typer.Option(metavar="NAME", help="Dataset of the accuracies.")]
Among = Annotated[
    str | None,
    typer.Option(metavar="PATTERN", help="Only models or families that match, such as 'swin*', timm or 'timm:levit*'."),
]
Pipeline = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Compare accuracies of this pipeline (default: yours if two models have it, else the benchmark's).",
    ),
]
AnyPipeline = Annotated[
    bool, typer.Option("--any-pipeline", help="Mix pipelines and image sizes; use each model's best accuracy.")
]
Unfinished = Annotated[bool, typer.Option("--unfinished", help="Include unfinished training runs; they are marked.")]
OverSeeds = Annotated[
    Literal["mean", "best"], typer.Option("--seeds", help="For runs with several seeds: use their mean or the best.")
]


def all_records(
    studies: list[Path] | None,
    *devices: str | None,
    every_device: bool = False,
    with_weights: bool = False,
    timm: bool = False,
) -> "pd.DataFrame":
    """The wide table of all records; lines that could not be read are reported."""
    named = [device for device in devices if device is not None]
    table, problems = load_evidence(
        studies or (), named, every_device=every_device, with_weights=with_weights, timm=timm
    )
    for problem in problems:
        note(f"warning: {problem}")
    return table


def tell_left_out(comparison: "Comparison", rows: "pd.DataFrame", metrics: list[str], device: str | None) -> None:
    """Say which numbers are from other settings or machines and left out."""
    from favor.analyze.origins import left_out_machines

    compared = comparison.compare(metrics, device)
    for name in metrics:
        others = compared.left_out(name, rows)
        if others:
            setting = compared.settings[name] or "no setting"
            note(f"note: {name} is from {setting}; {others} numbers from other settings are left out")
    machines = left_out_machines(comparison.models, compared.run)
    if machines:
        note(f"note: {machines}")


def tell_simulated(rows: "pd.DataFrame", metrics: Iterable[str]) -> None:
    """Say which metrics are simulated."""
    simulated = [name for name in metrics if "simulated" in set(rows.get(f"{name}_source", ()))]
    if simulated:
        note(f"{', '.join(simulated)}: simulated, not measured; docs/simulation.md says how accurate that is")


def how_to_measure() -> str:
    return "measure them with `favor measure NAME --study DIR` and add --study DIR"
