"""All figures together: complete, small, harmless, and filled or saying what fills them."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pytest
import typer
import vl_convert

from favor.errors import RequestError
from favor.records.table import table_of
from favor.report.figures import Figure, all_figures, export, figure
from favor.report.figures.export import FORMATS, print_spec
from report.figures.made_up import study_records

BENCHMARK_PLACES = (
    *("Figure 1", "Figure 2", "Figures 3 and 15", "Figures 4 and 18", "Figures 5 (left) and 21", "Figure 5 (right)"),
    *("Figure 6", "Figure 7", "Figure 8", "Figure 9", "Figure 10", "Figure 11", "Figure 12", "Figure 13", "Figure 14"),
    *("Figure 16", "Figure 17", "Figure 19", "Figure 20", "Table 1", "Table 2", "Table 5", "Table 6", "Table 7"),
)
PRINTED = (
    *("benchmark-taxonomy", "benchmark-accuracy-per-parameter", "benchmark-guide", "benchmark-variability"),
    *("benchmark-classes", "benchmark-parameters", "benchmark-memory-operations", "benchmark-cost-correlation"),
    *("benchmark-data-set-correlation", "benchmark-device-correlation", "benchmark-pareto-table"),
    *("benchmark-pipeline-gain", "misnomer-indicators", "misnomer-depth-width", "misnomer-disagreement"),
    *("misnomer-rank-flips", "misnomer-patch-sizes", "misnomer-quality", "misnomer-families"),
    *("misnomer-indicator-scatter", "x-formers-memory"),
)


def test_every_figure_of_the_three_papers_is_there(study_figures: dict[str, Figure]) -> None:
    places: dict[str, list[str]] = {}
    for each in study_figures.values():
        places.setdefault(each.group, []).append(each.source)
    assert tuple(places[figure.BENCHMARK]) == BENCHMARK_PLACES
    assert places[figure.MISNOMER] == [
        *("Figure 1", "Figure 1", "Figure 2", "Figure 3", "Figure 4"),
        *("Figure 5", "Figure 5", "Figure 5a", "Figure 5b", "Table 1"),
    ]
    assert places[figure.X_FORMERS] == ["Figure 4"]


def test_what_the_papers_printed_is_drawn_before_anything_is_measured(published_figures: dict[str, Figure]) -> None:
    assert {name for name, each in published_figures.items() if each.chart is not None} == set(PRINTED)


def test_a_study_with_accuracies_fills_all_but_those_of_several_trainings(study_figures: dict[str, Figure]) -> None:
    assert [name for name, each in study_figures.items() if each.chart is None] == [
        "benchmark-pretraining-resolution",
        "misnomer-schedules",
        "misnomer-weight-decays",
    ]


def test_identifiers_are_unique_and_fit_for_files(study_figures: dict[str, Figure], study: pd.DataFrame) -> None:
    assert all(name.replace("-", "").isalnum() and name.isascii() for name in study_figures)


def test_a_figure_has_either_a_chart_or_what_fills_it() -> None:
    with pytest.raises(ValueError, match="either a chart or says what fills it"):
        Figure("x", "g", "Figure 1", "t", "c", None, None)


def test_every_caption_of_a_chart_tells_the_sources(
    study_figures: dict[str, Figure], published_figures: dict[str, Figure]
) -> None:
    for each in (*study_figures.values(), *published_figures.values()):
        if each.chart is not None:
            assert "Source" in each.caption, each.id


def test_published_and_measured_numbers_are_said_to_be_so(
    study_figures: dict[str, Figure], published_figures: dict[str, Figure]
) -> None:
    assert "top-1 accuracy published" in published_figures["benchmark-parameters"].caption
    assert "throughput measured (cpu, fp32" in study_figures["benchmark-throughput"].caption
    assert "throughput published (tpu-v3)" in published_figures["misnomer-depth-width"].caption


def test_a_command_that_fills_a_figure_is_one_of_favors(published_figures: dict[str, Figure]) -> None:
    from favor.cli import app

    group = typer.main.get_command(app)
    commands = [command for each in published_figures.values() for command in commands_of(each)]
    assert len(commands) > 20
    for command in commands:
        parse(group, shlex.split(command)[1:])


def test_a_wrong_command_would_be_noticed() -> None:
    from favor.cli import app

    group = typer.main.get_command(app)
    for wrong in (["run", "--no-such-option"], ["no-such-command"]):
        with pytest.raises(Exception, match="No such|no-such"):
            parse(group, wrong)


def commands_of(each: Figure) -> list[str]:
    return each.missing.partition("Run: ")[2].split("; then: ") if each.missing else []


def parse(group: Any, arguments: list[str]) -> None:
    """Parse a command line as the program would, without running it."""
    context = group.make_context("favor", list(arguments))
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    if hasattr(command, "commands"):
        parse(command, rest)
    else:
        command.make_context(name, rest, parent=context)


def strings_outside_of_data(spec: Any) -> Iterator[str]:
    """All strings of a specification but the values of its data."""
    if isinstance(spec, dict):
        for key, value in spec.items():
            if key != "values":
                yield from strings_outside_of_data(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from strings_outside_of_data(value)
    elif isinstance(spec, str):
        yield spec


def test_a_hostile_name_is_a_value_and_stands_nowhere_else(study_specs: dict[str, dict[str, Any]]) -> None:
    hostile = [name for name, spec in study_specs.items() if "onerror" in json.dumps(spec)]
    assert len(hostile) >= 10
    for name in hostile:
        assert not [text for text in strings_outside_of_data(study_specs[name]) if "onerror" in text], name


def test_charts_have_no_look_of_their_own(study_specs: dict[str, dict[str, Any]]) -> None:
    for name, spec in study_specs.items():
        assert "background" not in spec
        assert spec.get("width") == "container" or "concat" in spec, name


def test_every_figure_is_small(study_specs: dict[str, dict[str, Any]]) -> None:
    for name, spec in study_specs.items():
        assert len(json.dumps(spec, separators=(",", ":"))) < 200_000, name


def test_every_figure_compiles(
    study_specs: dict[str, dict[str, Any]], published_figures: dict[str, Figure], study_figures: dict[str, Figure]
) -> None:
    printed = [published_figures[name].chart.to_dict() for name in PRINTED if name != "x-formers-memory"]  # type: ignore[union-attr]
    for spec in (*study_specs.values(), *printed):
        assert vl_convert.vegalite_to_vega(json.dumps(spec), vl_version="6.4")["marks"]


@pytest.mark.parametrize("records", [0, 1])
def test_next_to_nothing_is_drawn_or_missing_but_no_error(records: int) -> None:
    figures = all_figures(table_of(study_records()[:records]))
    assert len(figures) == 35
    assert any(each.missing for each in figures)


def test_for_print_widths_are_fixed_and_plots_side_by_side(study_figures: dict[str, Figure]) -> None:
    single = print_spec(study_figures["benchmark-throughput"])
    several = print_spec(study_figures["benchmark-data-sets"])
    assert isinstance(single["width"], int)
    assert several["columns"] == 2
    assert single["background"] == "white"
    assert study_figures["benchmark-data-sets"].chart.to_dict()["columns"] == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(("form", "start"), [("pdf", b"%PDF"), ("svg", b"<svg"), ("png", b"\x89PNG")])
def test_export_writes_a_file_for_every_chart(
    form: str, start: bytes, tmp_path: Path, study_figures: dict[str, Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [
        study_figures[name] for name in ("misnomer-patch-sizes", "benchmark-pretraining-resolution", "benchmark-guide")
    ]
    monkeypatch.setattr("favor.report.figures.all_figures", lambda table, scope, track: some)
    folder = tmp_path / "new" / "folder"
    written = export(pd.DataFrame(), folder, form)
    assert written == [folder / f"misnomer-patch-sizes.{form}", folder / f"benchmark-guide.{form}"]
    assert all(path.read_bytes().startswith(start) for path in written)


@pytest.mark.parametrize("form", FORMATS)
def test_control_characters_in_a_record_do_not_abort_the_drawing(
    form: str, tmp_path: Path, study_figures: dict[str, Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = study_figures["benchmark-throughput"]
    hostile = alt.Chart(pd.DataFrame({"x": ["a\x00b", "\x1b[31m", "\x9b31m"], "y": [1, 2, 3]})).mark_point()
    figure = replace(drawn, chart=hostile.encode(x="x:N", y="y:Q"))
    monkeypatch.setattr("favor.report.figures.all_figures", lambda table, scope, track: [figure])
    (written,) = export(pd.DataFrame(), tmp_path, form)
    assert written.stat().st_size > 1000
    assert r"a\x00b" in json.dumps(print_spec(figure)).replace("\\\\", "\\")


def test_an_unknown_format_is_refused_with_what_is_close(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="svg"):
        export(pd.DataFrame(), tmp_path, "svgz")
    assert FORMATS == ("pdf", "svg", "png")


def test_a_folder_that_cannot_be_made_is_refused(
    tmp_path: Path, study_figures: dict[str, Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("favor.report.figures.all_figures", lambda table, scope, track: list(study_figures.values()))
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="cannot be made"):
        export(pd.DataFrame(), tmp_path / "file" / "below", "svg")


def test_figures_start_without_torch() -> None:
    code = "import sys, favor.report.figures; sys.exit(bool({'torch', 'timm', 'torchvision'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_trainings_of_unequal_length_give_no_figure_a_verdict(study: pd.DataFrame) -> None:
    own = study["top1"].notna() & (study["source"] == "measured")
    epochs = pd.Series(range(len(study)), index=study.index) % 3 + 1.0
    lengths = {"minutes": 5.0, "epochs": epochs, "final": True}
    unequal = study.assign(**{name: pd.Series(value, index=study.index).where(own) for name, value in lengths.items()})
    told = {each.id: each.missing or each.caption for each in all_figures(unequal)}
    why = "training runs of unequal length: 1 to 3 epochs"
    with_accuracy = (
        *("throughput", "training-time", "training-memory", "inference-memory", "accuracy-per-parameter", "guide"),
        *("data-sets", "classes", "fronts-by-device", "model-or-image", "years", "parameters", "pipeline-gain"),
        "pareto-table",
    )
    assert [name for name in with_accuracy if why not in told[f"benchmark-{name}"]] == []
    assert why in told["misnomer-families"]
    for name in ("throughput", "training-time", "training-memory", "inference-memory", "parameters"):
        assert told[f"benchmark-{name}"].startswith("No front is drawn, because the accuracies cannot be compared.")
    assert "95 % interval" not in told["benchmark-pipeline-gain"]
    assert "gains more per doubling" not in told["benchmark-model-or-image"]
