"""Numbers from a busy machine, and contradictory ones, decide no order of models; what is left out is counted."""

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from favor.analyze import correlate, correlate_devices, disagreement
from favor.analyze.matched import matched, matched_every_way
from favor.cli import app
from favor.records import Record, append, reading
from favor.records.published import card_fields
from favor.report.figures.flips import flips_of
from favor.report.figures.relations import relation

NAMES = ("vit_s16", "swin_ti", "cvt_13", "xcit_s12_p16", "wavevit_s", "gfnet_s16")


def ladder(flags: str | None) -> pd.DataFrame:
    """Models whose speed falls with their size, and one that was the slowest because another program ran."""
    return pd.DataFrame(
        {
            "name": [f"m{i}" for i in range(6)],
            "how": "kernel",
            "img_size": 224,
            "params": [1e6, 2e6, 3e6, 4e6, 5e6, 6e6],
            "throughput": [0.8, 50.0, 40.0, 30.0, 20.0, 10.0],
            "throughput_flags": [flags, None, None, None, None, None],
            **{f"{name}_source": "measured" for name in ("params", "throughput")},
            **{f"{name}_setting": None for name in ("params", "throughput")},
        }
    )


@pytest.mark.parametrize("flags", ["busy throughput:wide", "throughput:contradictory"])
def test_a_disturbed_model_is_the_strongest_flip_of_nothing(flags: str) -> None:
    plain = disagreement(ladder(None), ["params", "throughput"])
    assert plain.pairs[0].strongest[0].cheaper_by_x == "m0"
    sound = disagreement(ladder(flags), ["params", "throughput"])
    assert (sound.pairs[0].n, sound.pairs[0].flipped, sound.warning, sound.two_faced) == (5, 0, None, ())
    assert (sound.excluded.disturbed, plain.excluded.disturbed) == (1, 0)
    assert disagreement(ladder("throughput:wide"), ["params", "throughput"]).excluded.disturbed == 0


def test_a_correlation_leaves_out_disturbed_numbers_and_counts_them() -> None:
    table = ladder("busy").assign(macs=[1e9, 2e9, 3e9, 4e9, 5e9, 7e9])
    result = correlate(table, ["params", "macs", "1/throughput"])
    by_speed = result.pair("params", "1/throughput")
    assert (by_speed.n, by_speed.spearman) == (5, pytest.approx(1.0))
    assert result.pair("params", "macs").n == 6, "its counts are sound"
    assert result.excluded.disturbed == 1
    assert correlate(ladder(None), ["params", "throughput"]).pairs[0].n == 6


def test_between_devices_a_disturbed_measurement_does_not_count() -> None:
    rows = [
        {"name": name, "device": device, "throughput": speed, "flags": flags}
        for device, factor in (("cpu", 1.0), ("a100", 50.0))
        for name, speed, flags in (
            *((f"m{i}", factor * (i + 1), None) for i in range(4)),
            ("m9", 0.1 if device == "cpu" else 500.0, "busy" if device == "cpu" else None),
        )
    ]
    result = correlate_devices(pd.DataFrame(rows))
    assert (result.pairs[0].n, result.pairs[0].spearman) == (4, pytest.approx(1.0))
    assert result.excluded.disturbed == 1


def families(flags: str | None) -> pd.DataFrame:
    """Two families; a model of y is as slow as the slowest of x because another program ran."""
    return pd.DataFrame(
        {
            "name": ["x0", "x1", "y0", "y1"],
            "family": ["x", "x", "y", "y"],
            "throughput": [100.0, 10.0, 102.0, 10.1],
            "throughput_flags": [None, None, None, flags],
            "top1": [70.0, 75.0, 71.0, 90.0],
        }
    )


def test_models_are_not_matched_by_a_disturbed_speed() -> None:
    assert [pair.changed for pair in matched(families(None), "x", "y", "throughput").effect.pairs] == ["y0", "y1"]
    comparison = matched(families("busy"), "x", "y", "throughput")
    assert [pair.changed for pair in comparison.effect.pairs] == ["y0"]
    assert (comparison.models_a, comparison.models_b, comparison.disturbed) == (2, 1, 1)


def test_where_all_speeds_of_a_family_are_disturbed_another_is_taken_or_the_match_is_missing() -> None:
    busy = families("busy").assign(throughput_flags=[None, None, "busy", "busy"])
    missing = "speed-matched: no undisturbed throughput or latency_p50 with top1 on both sides"
    assert missing in matched_every_way(busy, "x", "y").missing
    by_latency = matched_every_way(busy.assign(latency_p50=[0.1, 1.0, 0.1, 1.0]), "x", "y").comparisons
    assert [comparison.indicator for comparison in by_latency] == ["latency_p50"]


def measured(name: str, throughput: float, flags: str = "") -> Record:
    conditions = {"img_size": 224, "num_classes": 1000, "device": "cpu", "precision": "fp32", "batch": "best"}
    return Record(
        name=name,
        model=card_fields()[name],
        task="inference",
        source="measured",
        conditions=conditions,
        metrics={"throughput": reading("throughput", throughput, method="test")},
        environment={"host": "lab", "device_name": "a processor", "threads": 2, "flags": flags},
    )


def run(*words: object) -> tuple[str, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output + str(done.exception)
    return done.stdout, done.stderr


def test_the_commands_say_how_many_models_they_leave_out(tmp_path: Path) -> None:
    speeds = [measured(name, 10.0 * (i + 1)) for i, name in enumerate(NAMES[1:])]
    append(tmp_path, [*speeds, measured("vit_s16", 0.8, "busy")])
    table, notes = run("disagree", "params", "throughput", "--study", tmp_path)
    assert "vit_s16" not in table
    assert "5 models; left out: 1 model with a busy or contradictory number" in notes
    _, notes = run("correlate", "params", "throughput", "--study", tmp_path)
    assert "left out: the busy or contradictory numbers of 1 model" in notes


def test_indicators_that_are_disturbed_for_most_models_are_not_compared_by_themselves(tmp_path: Path) -> None:
    append(tmp_path, [measured(name, 10.0 * (i + 1), "busy") for i, name in enumerate(NAMES)])
    table, _ = run("disagree", "--among", "*_*", "--study", tmp_path)
    assert "throughput" not in table
    asked = ["disagree", "params", "throughput", "--study", str(tmp_path)]
    refused = CliRunner().invoke(app, asked).exception
    assert "no two models have undisturbed numbers for all of params, throughput at 224 px" in str(refused)


def test_the_figures_leave_disturbed_models_out_and_say_so() -> None:
    flips = flips_of(ladder("busy"))
    assert flips is not None
    assert flips.disagreement.pairs[0].n == 5
    assert flips.sources.startswith("Left out: 1 model with a busy or contradictory cost. Sources: parameters")
    info = relation(ladder("busy"), "throughput", "params", 224)
    assert (info.n, len(info.scatter.points)) == (5, 6)
    assert "Orange ring: 1 measured on a busy machine, or contradictory." in info.scatter.marks_sentence()
