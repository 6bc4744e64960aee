"""`favor compare`: two models metric by metric, or two families or classes at equal cost."""

from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, examples
from favor.cli.evidence import (
    AnyPipeline,
    Dataset,
    Device,
    OverSeeds,
    Pipeline,
    Studies,
    Unfinished,
    all_records,
    tell_left_out,
)
from favor.cli.zoo import AsJson
from favor.terminal import note

if TYPE_CHECKING:
    import pandas as pd

    from favor.analyze import Scope

COMPARE_EXAMPLES = examples(
    ("favor compare vit_s16 swin_ti", "two models, metric by metric, with tests"),
    ("favor compare vit swin --study mine", "two families, at equal parameters, compute and speed"),
    ("favor compare baseline hybrid", "two classes of the taxonomy"),
)


def add_commands(app: typer.Typer) -> None:
    app.command("compare", epilog=COMPARE_EXAMPLES)(compare_command)


def compare_command(
    a: Annotated[str, typer.Argument(help="A model, a family, or a class of the taxonomy.")],
    b: Annotated[str, typer.Argument(help="Another of the same kind.")],
    device: Device = None,
    dataset: Dataset = "imagenet-1k",
    pipeline: Pipeline = None,
    any_pipeline: AnyPipeline = False,
    unfinished: Unfinished = False,
    seeds: OverSeeds = "mean",
    study: Studies = None,
    as_json: AsJson = False,
) -> None:
    """Compare two models in every metric, or two families or classes at equal cost, with statistical tests."""
    from favor.analyze import Scope, compare, matched_every_way
    from favor.analyze.comparison import comparable_rows
    from favor.analyze.deviations import deviations
    from favor.cli import decision_text

    table = all_records(study, device)
    group = next((column for column in ("family", "how") if {a, b} <= set(table[column].dropna())), None)
    by = "name" if group is None or {a, b} <= set(table["name"]) else group
    # The two models choose the setting: the one they share most metrics in. Unknown names are refused further down.
    compared = table[table[by].isin([a, b])]
    scope = Scope(dataset, pipeline, any_pipeline, unfinished, seeds)
    machine = device or _usual_machine(table, scope, compared, by)
    rows, comparison = comparable_rows(table, [], scope, machine, None, of=compared if len(compared) else table)
    tell_left_out(comparison, rows, [], machine)
    flags = deviations(table, rows) if "top1" in rows.columns else {}
    if group is not None and by == group:
        flagged = {name: flags[name] for name in rows.loc[rows[group].isin([a, b]), "name"] if name in flags}
        own = rows.assign(top1=rows["top1"].mask(rows["name"].isin(list(flagged)))) if flagged else rows
        match = matched_every_way(own, a, b, group=group)
        if as_json:
            emit_json(match.to_dict() | {"flagged": flagged})
        else:
            decision_text.print_matched(match, flagged)
        return
    pair = compare(rows, a, b, dataset=dataset, flags=flags)
    emit_json(pair.to_dict()) if as_json else decision_text.print_comparison(pair)
    qualities = [entry for entry in pair.metrics if entry.metric == "top1"]
    if qualities:
        note(comparison.accuracy_note(str(qualities[0].a.source)))


def _usual_machine(table: "pd.DataFrame", scope: "Scope", compared: "pd.DataFrame", by: str) -> str | None:
    """The machine that `favor recommend` uses, if what is compared was measured there, too."""
    from favor.analyze import Comparison
    from favor.analyze.setting import condition_of

    comparison = Comparison(table, scope)
    run = comparison.narrowed(comparison.compare_in(None).trained["name"]).run_setting(())
    if run is None or run.machine is None:
        return None
    there = compared[condition_of(compared, "machine") == run.machine]
    return run.machine if set(there[by]) == set(compared[by]) else None
