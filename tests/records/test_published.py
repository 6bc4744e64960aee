"""The papers' tables: every row is here, as it is printed, under a name of the zoo."""

import csv
import re
from collections import Counter

import pandas as pd
import pytest

from favor.metrics import METRICS
from favor.records import published, published_table
from favor.records.published.measurements import DATASETS
from favor.records.schema import Record, from_data, to_data
from favor.zoo.taxonomy import How
from records.shared_folder import shared_file

FAVOR, MISNOMER, X_FORMERS = (
    "which_transformer_to_favor",
    "the_efficiency_misnomer",
    "hybrid_x_formers_for_vision",
)


def of_table(paper: str, table: str) -> list[Record]:
    place = {"paper": paper, "table": table}
    return [record for record in published.records() if place.items() <= record.provenance.items()]


def values(records: list[Record], metric: str) -> list[float]:
    return [record.metrics[metric].value for record in records if metric in record.metrics]


def paper_lines(paper: str) -> list[list[str]]:
    """The lines of a paper's text, split at the tabs of its tables."""
    file = shared_file("papers", f"{paper}.txt")
    return [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]


def test_every_record_is_sound_and_carries_a_card() -> None:
    for record in published.records():
        assert from_data(to_data(record)) == record
        assert record.model == published.card_fields()[record.name]
        assert record.source == "published"


def test_all_rows_are_there() -> None:
    counts = Counter((record.provenance["paper"], record.provenance.get("table")) for record in published.records())
    assert counts == {
        (FAVOR, "1"): 2 * 26,
        (FAVOR, "5"): 47 + 46 + 44 + 44,
        (FAVOR, None): 6,
        (MISNOMER, "1"): 4,
        (MISNOMER, "2"): 11,
        **{(X_FORMERS, table): rows for table, rows in zip("123456", (12, 12, 12, 12, 6, 8), strict=True)},
    }


def test_the_table_has_one_row_per_record() -> None:
    table = published_table()
    assert len(table) == len(published.records())
    of_vit = table[(table["name"] == "vit_s16") & (table["dataset"] == "cars")]
    assert of_vit["top1"].tolist() == [91.58]
    assert of_vit["provenance"].tolist() == ["which_transformer_to_favor, Table 5, ViT-S/16"]
    assert of_vit[["pipeline", "pretraining", "img_size"]].to_numpy().tolist() == [["wtf-deit3", "imagenet-21k", 224]]


def test_both_values_are_kept_where_the_paper_contradicts_itself() -> None:
    table = published_table()
    ours = table[(table["pipeline"] == "wtf-deit3") & (table["dataset"] == "imagenet-1k") & (table["status"] == "ok")]
    printed = ours.groupby("name")["top1"].unique()
    contradictions = {name: sorted(both) for name, both in printed.items() if len(both) > 1}
    assert contradictions == {
        "wavevit_s": [83.61, 83.91],
        "evit_fuse_s16": [81.96, 82.20],
        "polysa_s16": [78.34, 78.44],
        "swinv2_ti": [83.09, 83.11],
        "tokenlearner_8_75_s16": [80.66, 80.69],
    }
    memory_and_time = [
        correlation.value
        for correlation in published.correlations()
        if (correlation.x, correlation.y) == ("train_memory", "1/throughput")
    ]
    assert memory_and_time == [0.71, 0.75]


def test_the_mean_gain_that_the_text_prints_is_not_that_of_its_table() -> None:
    gain = published.mean_gain()
    assert (gain.printed, round(gain.from_rows, 2)) == (0.85, 0.81)


def test_table_1_pairs_the_original_with_the_new_pipeline_by_provenance() -> None:
    table = published_table()
    rows = table[table["provenance"].str.startswith(f"{FAVOR}, Table 1, ", na=False)]
    pairs = rows.pivot(index="provenance", columns="pipeline", values="top1")
    assert (pairs["wtf-deit3"] - pairs["original"]).mean() == pytest.approx(0.81, abs=0.005)
    original = rows[rows["pipeline"] == "original"].set_index("name")
    assert original["deit_based"].sum() == 13
    assert sorted(original.index[original["distillation"].astype(bool)]) == [
        "dynamicvit_s16",
        "efficientformerv2_s0",
        "swiftformer_s",
    ]
    assert original.loc["cvt_13", "img_size"] == 384
    assert original.loc["tokenlearner_8_75_s16", "img_size"] == 112


def test_training_failures_are_records_with_status_and_reason() -> None:
    failures = {record.name: record for record in published.records() if record.status != "ok"}
    names = ["avit_s16", "gtp_s16", "halonet_h0", "linear_s16", "performer_s16", "reformer_s16"]
    assert sorted(failures) == names
    assert {name for name, record in failures.items() if record.status == "out_of_memory"} == {"reformer_s16"}
    assert all(record.reason and record.provenance["section"] == "D.1" for record in failures.values())


def test_values_are_converted_to_the_glossarys_units() -> None:
    vit = next(record for record in of_table(X_FORMERS, "1") if record.name == "vix_vit").metrics
    assert vit["train_memory"].value == 14_100_000_000
    assert vit["model_size_paper"].value == round(209.39 * 1024 * 1024)
    assert vit["params_paper"].value == 530_442
    patches = next(record for record in of_table(MISNOMER, "1") if record.name == "vit_b16").metrics
    assert (patches["params"].value, patches["macs"].value) == (86_600_000, 17_630_000_000)
    throughput = patches["throughput"]
    assert throughput.value == pytest.approx(1000 / 1.30)
    assert (throughput.low, throughput.high) == pytest.approx((1000 / 1.305, 1000 / 1.295))


def test_known_misprints_are_kept_as_printed_and_named() -> None:
    levip = next(record for record in of_table(X_FORMERS, "3") if record.name == "vix_levip")
    assert levip.metrics["params_paper"].value == 662_410
    assert "622410" in levip.metrics["params_paper"].method
    noted = [
        record.provenance["row"]
        for record in published.records()
        for reading in record.metrics.values()
        if "; " in reading.method and "interval" not in reading.method
    ]
    assert sorted(noted) == ["D16", "D24", "D32", "D48", "D6", "D8", "LeViP", "ViT-B/64"]


def test_table_2_has_every_pair_of_its_six_metrics_once() -> None:
    table2 = [correlation for correlation in published.correlations() if correlation.place == "Table 2"]
    pairs = {frozenset((correlation.x, correlation.y)) for correlation in table2}
    assert len(table2) == len(pairs) == 6 * 5 // 2
    names = {name.removeprefix("1/") for pair in pairs for name in pair}
    assert names <= METRICS.keys()


def test_table_7_lists_33_entries_in_classes_of_the_taxonomy() -> None:
    assert len(published.pareto_optimal()) == 33
    assert sum(size.architectures for size in published.class_sizes()) == 40
    assert [size.how for size in published.class_sizes()] != []
    assert {size.how for size in published.class_sizes()} == {how.key for how in How}
    families = {card.family for card in published.card_fields().values()}
    assert {entry.family for entry in published.pareto_optimal()} <= families
    only_large = [entry.family for entry in published.pareto_optimal() if entry.img_size == 384]
    assert only_large == ["evit"]


def test_the_guide_is_table_7_in_the_classes_of_figure_6() -> None:
    memory = {entry.family for entry in published.guide("memory", "inference")}
    assert memory == {"coat", "efficientvit", "cvt", "nextvit", "efficientmod", "evit", "cait"}
    speed = {entry.family for entry in published.guide("speed", "inference")}
    assert "vit" in speed
    assert not {"synthesizer_fr", "hydra"} & speed
    assert any(advice.how == ("hybrid",) and advice.constraint == "memory" for advice in published.advice())


def test_every_name_of_the_reference_implementation_is_spelled_as_there() -> None:
    with shared_file("reference", "models.csv").open(encoding="utf-8") as lines:
        names = {row["name"] for row in csv.DictReader(lines)}
    ours = {name for name in published.card_fields() if not name.startswith(("vix_", "misnomer_"))}
    assert ours - names == {"vit_b8", "vit_b32", "vit_b64", "gtp_s16", "deit3_s16"}


@pytest.mark.parametrize("paper", [FAVOR, MISNOMER, X_FORMERS])
def test_every_number_in_a_row_of_the_text_is_a_value_or_condition_of_ours(paper: str) -> None:
    lines = paper_lines(paper)
    rows = sorted({(str(record.provenance["table"]), str(record.provenance["row"])) for record in records_of(paper)})
    for table, row in rows:
        ours = printed_numbers([record for record in of_table(paper, table) if record.provenance["row"] == row])
        in_text = [set(numbers(line[1:])) for line in lines if line[0].strip() == row and len(line) > 2]
        assert in_text, row
        assert any(cells and cells <= ours for cells in in_text), (row, in_text, ours)


def records_of(paper: str) -> list[Record]:
    return [record for record in published.records() if record.provenance["paper"] == paper and record.status == "ok"]


def numbers(cells: list[str]) -> list[float]:
    found = (re.match(r"[\d.,]+", cell.strip()) for cell in cells)
    return [float(match.group().replace(",", "")) for match in found if match]


def printed_numbers(records: list[Record]) -> set[float]:
    """Values and conditions in the units in which the papers print them."""
    scales = {"params": 1e6, "macs": 1e9, "train_memory": 1e9, "model_size_paper": 2**20}
    found = {
        round(reading.value / scales.get(name, 1), 2)
        for record in records
        for name, reading in record.metrics.items()
        if name != "throughput"
    }
    speeds = [record.metrics["throughput"].value for record in records if "throughput" in record.metrics]
    found |= {round(1000 / speed, 2) for speed in speeds}
    return found | {float(value) for record in records for value in record.conditions.values() if type(value) is int}


def column_sum(rows: list[list[str]], column: int) -> float:
    cells = [row[column] for row in rows if len(row) > column and row[column].strip()]
    return sum(numbers(cells))


def test_the_columns_of_table_5_add_up_to_those_of_the_text() -> None:
    lines = paper_lines(FAVOR)
    start = next(number for number, line in enumerate(lines) if line[:2] == ["ViT-S/16", "Baseline"])
    for column, dataset in enumerate(DATASETS, 2):
        ours = [record for record in of_table(FAVOR, "5") if record.conditions["dataset"] == dataset]
        assert sum(values(ours, "top1")) == pytest.approx(column_sum(lines[start : start + 47], column), abs=1e-6)


def test_the_columns_of_table_1_add_up_to_those_of_the_text() -> None:
    lines = paper_lines(FAVOR)
    start = next(number for number, line in enumerate(lines) if line[0] == "ViT-S (DeiT)")
    for column, pipeline in ((2, "original"), (3, "wtf-deit3")):
        ours = [record for record in of_table(FAVOR, "1") if record.conditions["pipeline"] == pipeline]
        assert sum(values(ours, "top1")) == pytest.approx(column_sum(lines[start : start + 26], column), abs=1e-6)


@pytest.mark.parametrize("table", "12345")
def test_the_columns_of_the_x_formers_tables_add_up_to_those_of_the_text(table: str) -> None:
    lines = paper_lines(X_FORMERS)
    end = next(number for number, line in enumerate(lines) if line[0].startswith(f"Table {table}. "))
    start = max(number for number in range(end) if lines[number][0] == "Model")
    ours = of_table(X_FORMERS, table)
    for column, (metric, scale) in enumerate(
        (("params_paper", 1), ("model_size_paper", 2**20), ("top1", 1), ("top5", 1), ("train_memory", 1e9)), 1
    ):
        text = column_sum(lines[start + 1 : end], column)
        assert sum(values(ours, metric)) / scale == pytest.approx(text, abs=1e-4), metric


def coefficients(place: str, kind: str, x: str) -> list[str]:
    return [
        f"{correlation.value:.2f}"
        for correlation in published.correlations()
        if (correlation.place, correlation.kind, correlation.x) == (place, kind, x)
    ]


def test_correlations_formula_and_variability_are_in_the_text() -> None:
    text = "\n".join("\t".join(line) for line in paper_lines(FAVOR))
    assert "\t".join(["FLOPS", *coefficients("Table 2", "pearson", "ops_mixed")]) in text
    assert "\t".join(["θ", *coefficients("Table 2", "pearson", "params")]) in text
    assert "\t".join(["Training Time\t\t", *coefficients("Table 2", "pearson", "finetune_time")]) in text
    assert "\t".join(["Training Mem\t\t\t", *coefficients("Table 2", "pearson", "train_memory")]) in text
    assert "\t".join(["Inference Time\t\t\t\t", *coefficients("Table 2", "pearson", "1/throughput")]) in text
    for kind, title in (("pearson", "Correlation"), ("spearman", "Spearman's \u03c1")):
        assert "\t".join([title, "with ImageNet-1k", "1.0", *coefficients("Table 5", kind, "imagenet-1k")]) in text
    for device, title in (("a100", "A100"), ("i9-12900h", "CPU")):
        left, right = coefficients("Table 6", "pearson", device), coefficients("Table 6", "spearman", device)
        empty = [""] * (2 - len(left))
        assert "\t".join([title, *empty, *left, title, *empty, *right]) in text
    formula = published.VRAM_FORMULA
    assert f"{formula.slope} \\cdot \\text{{GFlops}} + {formula.intercept:.2f}" in text
    for spread in published.variability():
        printed = (spread.low, spread.std, spread.range_percent, spread.std_percent)
        assert all(f"{number:g}" in text for number in printed)


def test_the_table_is_made_anew_so_that_no_reader_can_spoil_it() -> None:
    spoiled = published_table()
    spoiled["top1"] = 0.0
    assert isinstance(spoiled, pd.DataFrame)
    assert published_table()["top1"].max() > 99
