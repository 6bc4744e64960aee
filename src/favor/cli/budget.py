"""`favor budget`: accuracy over what a training run spends. Starts without torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from favor.cli.console import emit_json, emit_line, emit_table, examples
from favor.terminal import note
from favor.text import plural

if TYPE_CHECKING:
    from favor.analyze.budget import BudgetResult, LateFlip, Reached
    from favor.analyze.learning_curves import LearningCurve

_SHOWN_BUDGETS = 8
_SHOWN_FLIPS = 10

EXAMPLES = examples(
    ("favor budget runs/misnomer", "accuracy by epoch, and the pairs of runs whose order flips late"),
    ("favor budget runs/misnomer --over hours --reach 70", "by device hours, and what it takes to reach 70 %"),
    ("favor budget runs/misnomer --over money --price-per-hour 2.5 --json", "by money, for programs"),
)


def add_commands(app: typer.Typer) -> None:
    """Register `budget`."""
    app.command("budget", epilog=EXAMPLES)(budget_command)


def budget_command(
    studies: Annotated[list[Path], typer.Argument(metavar="STUDY...", help="Study folders, or files of records.")],
    over: Annotated[
        Literal["epochs", "images", "steps", "hours", "energy", "money"],
        typer.Option(help="Budget of the curves; hours are summed over all devices that train."),
    ] = "epochs",
    reach: Annotated[
        str | None, typer.Option(metavar="80", help="Show what it takes to reach this top-1 accuracy in %.")
    ] = None,
    margin: Annotated[
        float, typer.Option(min=0.0, help="When looking for late flips, treat leads up to this many points as ties.")
    ] = 1.0,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Dataset of the training runs (default: the only one).")
    ] = None,
    among: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only models or families that match, such as 'vit*'.")
    ] = None,
    price_per_hour: Annotated[
        float | None, typer.Option(min=0.0, help="Price of a device per hour, for money (default: the study's).")
    ] = None,
    grid_intensity: Annotated[
        float | None,
        typer.Option(min=0.0, help="Carbon intensity of your grid in gCO2e/kWh, for carbon (default: the study's)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show accuracy over training budget: learning curves, pairs of runs whose order flips late, images to reach an
    accuracy, and totals.

    Runs that differ only in the seed are averaged. A finished run keeps its last accuracy, so a short schedule can be
    compared with a long one. The order of two runs flips late if one leads at first and ends behind.
    """
    from favor.analyze.budget import over_budget
    from favor.analyze.learning_curves import learning_curves
    from favor.analyze.selection import fitting
    from favor.records.table import load_reporting
    from favor.units import parse_quantity

    table, problems = load_reporting(*studies)
    for problem in problems:
        note(f"warning: {problem}")
    accuracy = None if reach is None else parse_quantity(reach, "%", "--reach")
    curves = learning_curves(fitting(table, among), dataset, price_per_hour)
    result = over_budget(curves, over, reach=accuracy, margin=margin, grid_intensity=grid_intensity)
    emit_json(result.to_dict()) if as_json else _print(result, margin)


def _print(result: "BudgetResult", margin: float) -> None:
    _print_curves(result)
    _print_totals(result)
    if result.reach is not None:
        _print_reached(result)
    _print_flips(result, margin)
    for curve in result.curves:
        if curve.finished and curve.unfinished_seeds:
            note(f"note: {curve.run}: {plural(curve.unfinished_seeds, 'seed')} unfinished, left out of the mean")
        elif not curve.finished:
            note(f"note: {curve.run} is unfinished: {_progress(curve)}")
    if len({curve.machine for curve in result.curves}) > 1:
        note("note: the runs are from several machines; hours, energy and money are compared only on the same machine")


def _print_curves(result: "BudgetResult") -> None:
    """Accuracy by budget: at the evaluations if all runs share them, else interpolated at even steps."""
    import numpy as np

    from favor.analyze.learning_curves import BUDGETS

    unit = BUDGETS[result.over].unit
    known = [curve for curve in result.curves if getattr(curve.last, result.over) is not None]
    lines = {c.run: ([getattr(p, result.over) for p in c.points], [p.top1 for p in c.points]) for c in known}
    places = sorted({place for budgets, _ in lines.values() for place in budgets})
    if len(places) > _SHOWN_BUDGETS:
        places = list(np.linspace(0, places[-1], _SHOWN_BUDGETS + 1)[1:])
    columns = ["Run", "Seeds", *(_with_unit(place, unit) for place in places)]
    rows = []
    for curve in known:
        budgets, top1 = lines[curve.run]
        rows.append([curve.run, str(curve.seeds), *(_cell(curve, budgets, top1, place) for place in places)])
    title = f"Top-1 accuracy on {result.dataset} over {BUDGETS[result.over].title.lower()}"
    emit_table(title, columns, rows, right=columns[1:])
    if any("(" in cell for row in rows for cell in row[2:]):
        note("in parentheses: the final accuracy of a run that had already finished")


def _cell(curve: "LearningCurve", budgets: list[float], top1: list[float], place: float) -> str:
    """The accuracy at a budget; blank before the first evaluation, and after the last one of an unfinished run."""
    import numpy as np

    if place < budgets[0]:
        return ""
    if place <= budgets[-1] * (1 + 1e-9):
        return f"{np.interp(place, budgets, top1):.2f} %"
    return f"({top1[-1]:.2f} %)" if curve.finished else ""


def _print_totals(result: "BudgetResult") -> None:
    from favor.analyze.learning_curves import BUDGETS

    shown = [name for name in BUDGETS if any(getattr(curve.last, name) is not None for curve in result.curves)]
    carbon = any(grams is not None for grams in result.carbon)
    columns = ["Run", "Top-1", *(BUDGETS[name].title for name in shown), *(["Carbon"] if carbon else []), "Pipeline"]
    rows = [
        [
            curve.run,
            f"{curve.last.top1:.2f} %",
            *(_with_unit(getattr(curve.last, name), BUDGETS[name].unit) for name in shown),
            *([_with_unit(grams, "gCO2e")] if carbon else []),
            curve.pipeline if curve.finished else f"{curve.pipeline}, unfinished",
        ]
        for curve, grams in zip(result.curves, result.carbon, strict=True)
    ]
    emit_table("Totals per run, mean over seeds", columns, rows, right=columns[1:-1])


def _print_reached(result: "BudgetResult") -> None:
    from favor.analyze.learning_curves import BUDGETS

    shown = [name for name in BUDGETS if any(getattr(curve.last, name) is not None for curve in result.curves)]
    columns = ["Run", *(BUDGETS[name].title for name in shown)]
    rows = [
        [curve.run, *(_spent(reached, name, BUDGETS[name].unit) for name in shown)]
        for curve, reached in zip(result.curves, result.reached, strict=True)
    ]
    emit_table(f"To reach {result.reach:g} % top-1", columns, rows, right=columns[1:])


def _spent(reached: "Reached | None", budget: str, unit: str) -> str:
    if reached is None:
        return "not reached"
    spent = getattr(reached, budget)
    at_most = "at most " if reached.at_first and spent is not None else ""
    return f"{at_most}{_with_unit(spent, unit)}"


def _print_flips(result: "BudgetResult", margin: float) -> None:
    from favor.analyze.learning_curves import BUDGETS

    comparison = result.comparison
    if comparison is None:
        note("note: no two runs can be compared over this budget")
        return
    ties = f" (leads of {margin:g} point{'' if margin == 1 else 's'} or less are ties)" if margin else ""
    emit_line(f"Late flips: {len(comparison.flips)} of {plural(comparison.pairs, 'pair')}{ties}.")
    for flip in comparison.flips[:_SHOWN_FLIPS]:
        emit_line(_flip_sentence(flip, BUDGETS[result.over].unit))
    if len(comparison.flips) > _SHOWN_FLIPS:
        note(f"{len(comparison.flips) - _SHOWN_FLIPS} more flips; --json has all of them")


def _flip_sentence(flip: "LateFlip", unit: str) -> str:
    return (
        f"{flip.leads_early} leads {flip.leads_late} until {_with_unit(flip.until, unit)} (by up to "
        f"{flip.early_lead:.1f} points), and is {flip.final_deficit:.1f} points behind at "
        f"{_with_unit(flip.final_budget, unit)}."
    )


def _progress(curve: "LearningCurve") -> str:
    planned = "" if curve.planned_epochs is None else f" of {curve.planned_epochs:g}"
    return f"{curve.last.epochs:g}{planned} epochs"


def _with_unit(value: float | None, unit: str) -> str:
    """A quantity for people: short times in minutes or seconds, one epoch in the singular."""
    from favor.units import format_quantity

    if value is None:
        return "unknown"
    if unit == "h" and value < 1:
        return f"{value * 60:.3g} min" if value * 60 >= 1 else f"{value * 3600:.3g} s"
    text = format_quantity(value, unit)
    return text.removesuffix("s") if text in ("1 epochs", "1 steps") else text
