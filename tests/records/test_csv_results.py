"""Results of others from a CSV file: what becomes of each row, and what is refused."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from favor import load_records
from favor.cli import app
from favor.errors import RequestError
from favor.records.csv_results import import_csv
from favor.records.result_file import ImportedFile
from favor.records.store import read

HEADER = (
    "model,dataset,top1,top1_low,top1_high,pipeline,img_size,epochs,seed,device,batch_size,throughput,params,source\n"
)
ROW = "vit_s16,imagenet-1k,81.4,81.1,81.7,deit3,224,800,2,a100,64,2150,22e6,Table 4\n"


def imported(tmp_path: Path, text: str) -> ImportedFile:
    file = tmp_path / "results.csv"
    file.write_text(text)
    return import_csv(file)


def test_a_row_gives_a_record_for_each_kind_of_number_with_the_conditions_of_that_kind(tmp_path: Path) -> None:
    by_task = {record.task: record for record in imported(tmp_path, HEADER + ROW).records}
    assert set(by_task) == {"accuracy", "inference", "count"}
    accuracy = by_task["accuracy"]
    assert (accuracy.name, accuracy.model.family, accuracy.source) == ("vit_s16", "vit", "imported")
    top1 = accuracy.metrics["top1"]
    assert (top1.value, top1.low, top1.high, top1.unit) == (81.4, 81.1, 81.7, "%")
    trained = {"dataset": "imagenet-1k", "pipeline": "deit3", "img_size": 224, "epochs": 800, "recipe.seed": 2}
    assert dict(accuracy.conditions) == trained
    ran = {"device": "a100", "batch_size": 64, "batch": "given", "img_size": 224}
    assert dict(by_task["inference"].conditions) == ran
    assert dict(by_task["count"].conditions) == {"img_size": 224}
    assert accuracy.provenance == {"file": "results.csv", "row": "vit_s16", "source": "Table 4"}


@pytest.mark.parametrize("metric", ["train_step_time", "finetune_time", "pipeline_idle_time"])
def test_a_cost_of_training_is_of_training(tmp_path: Path, metric: str) -> None:
    [record] = imported(tmp_path, f"model,device,{metric},source\nvit_s16,a100,0.5,Table 4\n").records
    assert (record.task, record.metrics[metric].value) == ("training", 0.5)


@pytest.mark.parametrize("source", ["Müller et al., Table 4", "我们的实验室 2026"])
def test_sources_are_named_in_any_language(tmp_path: Path, source: str) -> None:
    found = imported(tmp_path, HEADER + ROW.replace("Table 4", f'"{source}"'))
    assert {record.provenance["source"] for record in found.records} == {source}


def test_the_seed_may_be_zero(tmp_path: Path) -> None:
    found = imported(tmp_path, HEADER + ROW.replace(",800,2,", ",800,0,"))
    assert not found.skipped
    assert [record.conditions["recipe.seed"] for record in found.records if record.task == "accuracy"] == [0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("81.4", "181.4"), "top1 '181.4' is above 100 %"),
        (("81.4", "0.814"), "top1 '0.814' is a share; write it in percent: 81.4"),
        (("81.4", '"81,4"'), "top1 '81,4' is not a number above zero"),
        (("81.4,81.1", "81.4,82.1"), "metrics.top1: value 81.4 is not within low 82.1"),
        (("deit3", ""), "pipeline is empty, and numbers of the kind accuracy depend on it"),
        (("a100", ""), "device is empty, and numbers of the kind inference depend on it"),
        (("81.4", "eighty"), "top1 'eighty' is not a number above zero"),
        (("vit_s16", "=cmd|x"), "model '=cmd|x' is empty, too long, or has characters"),
        (("Table 4", ""), "source '' is empty"),
        (("Table 4", "Table\u202e4"), "source 'Table\\u202e4' is empty, too long, or has characters"),
        ((",22e6,", ","), "13 cells where the header has 14"),
    ],
)
def test_a_malformed_row_is_skipped_with_its_line_and_the_others_are_kept(
    tmp_path: Path, change: tuple[str, str], why: str
) -> None:
    found = imported(tmp_path, HEADER + ROW.replace(*change) + ROW)
    [skipped] = found.skipped
    assert str(skipped).startswith(f"{tmp_path / 'results.csv'}:2: row skipped: {why}")
    assert len(found.records) == 3


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("model,top1", "there is no column source; add it"),
        ("model,source,dataset", "no column is a metric"),
        ("model,source,topp1", "unknown column 'topp1'; did you mean 'top1'"),
        ("model;source;top1", "columns separated by semicolons; separate them by commas"),
        ("model,source,top1,top1", "the header names a column twice"),
    ],
)
def test_a_header_that_cannot_be_right_is_refused_in_one_line(tmp_path: Path, header: str, why: str) -> None:
    with pytest.raises(RequestError) as refused:
        imported(tmp_path, f"{header}\n")
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_imported_results_stand_beside_the_own_ones_and_a_second_import_adds_nothing(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text(HEADER + ROW)
    arguments = ["import", "csv", str(tmp_path / "results.csv"), "--study", str(tmp_path / "study")]
    for _ in range(2):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    assert len(read(tmp_path / "study").records) == 3
    assert load_records(tmp_path / "study")["top1"].dropna().tolist() == [81.4]


def test_a_file_as_spreadsheets_write_it_is_read(tmp_path: Path) -> None:
    found = imported(tmp_path, "\ufeff" + (HEADER + ROW).replace("\n", "\r\n"))
    assert (len(found.records), found.skipped) == (3, ())
    assert {record.provenance["source"] for record in found.records} == {"Table 4"}
