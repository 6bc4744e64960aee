"""The table of a paper: rounding by the interval, the best in bold, sources and flags as footnotes."""

import math

import pandas as pd
import pytest

from favor.report.results_table import results_table

ROWS = pd.DataFrame(
    {
        "name": ["vit_s16", "swin_ti", "my_net"],
        "img_size": [224.0, 224.0, 224.0],
        "top1": [82.5431, 83.0, math.nan],
        "top1_low": [82.31, math.nan, math.nan],
        "top1_high": [82.79, math.nan, math.nan],
        "top1_source": ["published", "measured", None],
        "throughput": [29.7, 31.25, 12.0],
        "throughput_low": [29.5, 30.9, math.nan],
        "throughput_high": [29.9, 31.6, math.nan],
        "throughput_source": ["measured"] * 3,
        "throughput_flags": [None, "busy", None],
        "params": [22_059_496.0, 28_288_354.0, 1_000_000.0],
        "macs": [math.nan] * 3,
    }
)
TABLE = results_table(ROWS, ["top1", "throughput", "params", "macs"])


def test_markdown_has_units_directions_intervals_the_best_in_bold_and_footnotes() -> None:
    assert TABLE.to_markdown().splitlines() == [
        "| Model | Top-1 accuracy [%] ↑ | Throughput [img/s] ↑ | Parameters [M] ↓ |",
        "| :--- | ---: | ---: | ---: |",
        "| vit_s16 | 82.54 ± 0.24 <sup>1</sup> | 29.70 ± 0.20 | 22.06 |",
        "| swin_ti | **83 ± ?** | 31.25 ± 0.35 <sup>2</sup> | 28.29 |",
        "| my_net |  | 12 ± ? | **1** |",
        "",
        "1. published",
        "2. flagged: busy",
    ]


def test_latex_escapes_names_and_has_the_same_cells() -> None:
    lines = TABLE.to_latex().splitlines()
    assert lines[:2] == [r"\begin{tabular}{lrrr}", r"\toprule"]
    assert lines[2].startswith(r"Model & Top-1 accuracy [\%] $\uparrow$ & ")
    assert r"vit\_s16 & 82.54 $\pm$ 0.24$^{1}$ & 29.70 $\pm$ 0.20 & 22.06 \\" in lines
    assert r"swin\_ti & \textbf{83 $\pm$ ?} & 31.25 $\pm$ 0.35$^{2}$ & 28.29 \\" in lines
    assert lines[-1] == r"\\ $^{2}$ flagged: busy"


def test_a_number_that_was_extrapolated_has_a_footnote() -> None:
    memory = "train_memory_reference_batch"
    numbers = {memory: [90e9, 80e9], f"{memory}_low": [88e9, 80e9], f"{memory}_high": [99e9, 80e9]}
    rows = pd.DataFrame({"name": ["a", "b"], "img_size": 224.0, **numbers, f"{memory}_source": "measured"})
    table = results_table(rows, [memory])
    assert [cell and cell.notes for _, (cell,) in table.rows] == [(1,), ()]
    assert table.notes == ("extrapolated",)


@pytest.mark.parametrize("flags", ["busy", "throughput:contradictory"])
def test_a_disturbed_number_is_not_bold_and_lets_no_other_be_the_best(flags: str) -> None:
    def bold(flagged: str) -> list[str]:
        rows = ROWS.assign(throughput_flags=[flags if name == flagged else None for name in ROWS["name"]])
        return [name for name, (cell,) in results_table(rows, ["throughput"]).rows if cell and cell.is_best]

    assert bold("swin_ti") == []
    assert bold("vit_s16") == ["swin_ti"]


def test_a_metric_without_a_number_is_left_out_and_sizes_are_named_where_there_are_several() -> None:
    assert [column.metric for column in TABLE.columns] == ["top1", "throughput", "params"]
    sizes = results_table(ROWS.assign(img_size=[224.0, 384.0, 224.0]), ["params"])
    assert [name for name, _ in sizes.rows] == ["vit_s16 (224 px)", "swin_ti (384 px)", "my_net (224 px)"]


def test_a_model_without_any_of_the_numbers_has_no_row() -> None:
    assert [name for name, _ in results_table(ROWS, ["top1"]).rows] == ["vit_s16", "swin_ti"]


def test_an_unfinished_training_and_mixed_pipelines_are_footnotes() -> None:
    mixed = ROWS.assign(top1_unfinished=[math.nan, 3.0, math.nan], top1_pipeline=["theirs", "ours", None])
    made = results_table(mixed, ["top1"])
    assert made.notes == ("published", "pipeline theirs", "unfinished, after 3 epochs", "pipeline ours")
    assert [cell.notes for _, (cell,) in made.rows if cell] == [(1, 2), (3, 4)]
    one = results_table(mixed.assign(top1_pipeline=["ours", "ours", None]), ["top1"])
    assert one.notes == ("published", "unfinished, after 3 epochs")


def test_names_and_footnotes_are_text_in_markdown_and_latex() -> None:
    named = ROWS.head(1).assign(name=["<img onerror=x> | a^b"], throughput_flags=["`[x](y)`"])
    table = results_table(named, ["throughput"])
    assert r"| &lt;img onerror=x> \| a^b | " in table.to_markdown()
    assert r"1. flagged: \`\[x\](y)\`" in table.to_markdown()
    assert r"| a\textasciicircum{}b & " in table.to_latex()


def test_an_interval_too_narrow_for_a_number_is_left_out() -> None:
    narrow = ROWS.head(1).assign(params=[5e-324], params_low=[0.0], params_high=[5e-324])
    (cell,) = results_table(narrow, ["params"]).rows[0][1]
    assert cell is not None
    assert cell.plus_minus is None
