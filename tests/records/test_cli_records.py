"""`favor table` and `favor import timm` as a user meets them."""

import csv
import errno
import io
import json
import os
from pathlib import Path

import pandas as pd
import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner, Result

from favor.atomic_file import write_whole
from favor.cli import records as commands
from favor.errors import RequestError, WorkError
from favor.records import append, load, read
from favor.records.export import from_csv, to_csv
from favor.records.store import FILE_NAME
from records.record_strategies import a_record

ACCURACY = (
    "model,img_size,top1,top1_err,top5,top5_err,param_count,crop_pct,interpolation\n"
    "resnet50.a1_in1k,224,80.2,19.8,95.0,5.0,25.56,0.9,bicubic\n"
    "resnet50.a2_in1k,224,seventy,20.2,95.0,5.0,25.56,0.9,bicubic\n"
)


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    made = typer.Typer()
    made.callback()(lambda: None)
    commands.add_commands(made)
    return made


def run(app: typer.Typer, *words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=True)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    mixed = a_record("vit_b16", conditions={"img_size": 224, "ema": True, "device": 5})
    append(tmp_path / "study", [a_record(), mixed])
    return tmp_path / "study"


def test_csv_goes_to_stdout_with_a_row_per_model_and_empty_cells_for_the_unknown(app: typer.Typer, study: Path) -> None:
    result = run(app, "table", study, "--csv")
    assert result.exit_code == 0
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["name"] for row in rows] == ["vit_s16", "vit_b16"]
    assert [row["batch_size"] for row in rows] == ["8.0", ""]
    assert [float(row["throughput_low"]) for row in rows] == [11.5, 11.5]


def test_parquet_holds_the_same_table_and_the_units(app: typer.Typer, study: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    result = run(app, "table", study, "--parquet", "-o", file)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "2 rows" in result.stderr
    table = pd.read_parquet(file)
    assert table["throughput"].tolist() == load(study)["throughput"].tolist()
    assert table["device"].tolist() == ['"cpu"', "5"]
    assert table["ema"].tolist() == [None, True] or pd.isna(table["ema"][0])
    assert parquet.read_schema(file).field("throughput_low").metadata[b"unit"] == b"img/s"


def test_a_torn_line_is_told_on_stderr_and_the_rest_is_in_the_table(app: typer.Typer, study: Path) -> None:
    with (study / FILE_NAME).open("ab") as file:
        file.write(b'{"schema":1,"requ')
    result = run(app, "table", study, "--csv")
    assert result.exit_code == 0
    assert "records.jsonl:3: incomplete line, skipped" in result.stderr
    assert len(result.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "one of --csv, --parquet, --markdown and --latex"),
        (["--csv", "--parquet"], "one of --csv, --parquet, --markdown and --latex"),
        (["--parquet"], "name a file"),
    ],
)
def test_an_unclear_export_is_refused_with_an_example(
    app: typer.Typer, study: Path, words: list[str], why: str
) -> None:
    result = run(app, "table", study, *words)
    assert isinstance(result.exception, RequestError)
    assert why in str(result.exception)
    assert result.stdout == ""


def test_an_export_that_fails_leaves_no_part_of_a_file(app: typer.Typer, study: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    result = run(app, "table", study, "--csv", "-o", tmp_path / "folder")
    assert "cannot write" in str(result.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "study"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    file = tmp_path / "results-imagenet.csv"
    file.write_text(ACCURACY)
    return file


def test_import_shows_what_it_read_and_what_it_skipped(app: typer.Typer, results: Path) -> None:
    result = run(app, "import", "timm", results)
    assert result.exit_code == 0
    assert "2 rows read, 1 imported, 1 skipped" in result.stderr
    assert "results-imagenet.csv:3: row skipped" in result.stderr
    assert "resnet50" in result.stdout
    assert "80.20" in result.stdout


def test_import_into_a_study_adds_each_row_once(app: typer.Typer, results: Path, tmp_path: Path) -> None:
    for said in ("1 records added", "0 records added"):
        result = run(app, "import", "timm", results, "--study", tmp_path / "study")
        assert said in result.stderr
        assert result.stdout == ""
    (record,) = read(tmp_path / "study").records
    assert (record.name, record.source, record.metrics["top1"].value) == ("resnet50", "imported", 80.2)


def test_two_rows_of_one_architecture_are_two_records_and_are_imported_once(app: typer.Typer, tmp_path: Path) -> None:
    file = tmp_path / "benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv"
    rows = ["deit3_small_patch16_224,224,977.26,384,22.06", "deit3_small_patch16_224_in21ft1k,224,976.5,384,22.06"]
    # Even one that says two things of the same.
    rows.append(rows[0].replace("977", "970"))
    file.write_text("\n".join(["model,train_img_size,train_samples_per_sec,train_batch_size,param_count", *rows]))
    for said in ("3 records added", "0 records added"):
        assert said in run(app, "import", "timm", file, "--study", tmp_path / "study").stderr
    assert {record.name for record in read(tmp_path / "study").records} == {"deit3_s16"}


def test_importing_a_file_that_has_grown_adds_only_what_is_new(app: typer.Typer, results: Path, tmp_path: Path) -> None:
    run(app, "import", "timm", results, "--study", tmp_path / "study")
    header, first, *_ = ACCURACY.splitlines()
    results.write_text("\n".join([header, first.replace("a1", "b1"), first]))
    result = run(app, "import", "timm", results, "--study", tmp_path / "study")
    assert "1 records added" in result.stderr
    assert "1 were already there" in result.stderr
    weights = [record.conditions["weights"] for record in read(tmp_path / "study").records]
    assert weights == ["a1_in1k", "b1_in1k"]


def test_a_value_that_timm_has_corrected_replaces_the_old_one_in_the_table(
    app: typer.Typer, results: Path, tmp_path: Path
) -> None:
    run(app, "import", "timm", results, "--study", tmp_path / "study")
    results.write_text(ACCURACY.replace("80.2", "80.4"))
    result = run(app, "import", "timm", results, "--study", tmp_path / "study")
    assert "1 of them newer values of existing records" in result.stderr
    assert load(tmp_path / "study")["top1"].tolist() == [80.4]


def test_the_same_speeds_under_another_framework_are_records_of_their_own(app: typer.Typer, tmp_path: Path) -> None:
    header = "model,infer_img_size,infer_samples_per_sec,infer_batch_size,param_count\n"
    for version in ("pt240", "pt2100"):
        file = tmp_path / f"benchmark-infer-amp-nchw-{version}-cu124-rtx4090.csv"
        file.write_text(header + "resnet50,224,4702.21,1024,25.56\n")
        assert "1 records added" in run(app, "import", "timm", file, "--study", tmp_path / "study").stderr
    assert load(tmp_path / "study")["machine"].tolist() == ["rtx4090, torch 2.4.0", "rtx4090, torch 2.10.0"]


def test_import_prints_its_records_as_json(app: typer.Typer, results: Path) -> None:
    (record,) = json.loads(run(app, "import", "timm", results, "--json").stdout)
    assert record["name"] == "resnet50"
    assert record["metrics"]["top1"] == {
        "value": 80.2,
        "unit": "%",
        "low": None,
        "high": None,
        "method": "timm's top1",
    }


def test_a_file_of_another_kind_stops_the_import_before_anything_is_written(
    app: typer.Typer, results: Path, tmp_path: Path
) -> None:
    other = tmp_path / "notes.csv"
    other.write_text("a,b\n")
    result = run(app, "import", "timm", results, other, "--study", tmp_path / "study")
    assert "notes.csv is not named like a timm result file" in str(result.exception)
    assert not (tmp_path / "study").exists()


def test_help_shows_examples(app: typer.Typer) -> None:
    assert "favor table my-study --csv" in run(app, "table", "--help").stdout
    assert "--study my-study" in " ".join(run(app, "import", "timm", "--help").stdout.split())


FORMULAS = ["=cmd|' /C calc'!A0", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "'=1", "''+1", "'quoted'", "plain"]


def test_csv_has_no_cell_that_a_spreadsheet_runs_and_is_read_again_as_it_was() -> None:
    table = pd.DataFrame({"name": FORMULAS, "=header": FORMULAS, "top1": [-float(i) for i in range(len(FORMULAS))]})
    written = to_csv(table)
    for row in csv.reader(io.StringIO(written, newline="")):
        assert not any(cell.startswith(("=", "+", "@", "\t", "\r", "\n")) for cell in row)
        assert not any(cell.startswith("-") for cell in row[:2])
    pd.testing.assert_frame_equal(from_csv(written), table)


def test_a_formula_in_a_record_leaves_the_command_as_text(app: typer.Typer, tmp_path: Path) -> None:
    append(tmp_path / "study", [a_record("=cmd|calc", conditions={"img_size": 224, "device": "@cpu", "batch_size": 8})])
    (row,) = csv.DictReader(io.StringIO(run(app, "table", tmp_path / "study", "--csv").stdout))
    assert (row["name"], row["device"]) == ("'=cmd|calc", "'@cpu")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_one_clear_error(app: typer.Typer, study: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    result = run(app, "table", study, "--csv", "-o", tmp_path / "locked" / "out.csv")
    assert "cannot write" in str(result.exception)


def test_a_read_only_file_system_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(WorkError, match=r"cannot write .*out.csv: Read-only file system"):
        write_whole(tmp_path / "out.csv", b"")


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_a_file_without_a_name_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="not a file name"):
        write_whole(Path(name), b"")


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "link"])
def test_an_output_that_is_no_regular_file_is_refused_and_stays_what_it_is(tmp_path: Path, kind: str) -> None:
    target, output = tmp_path / "target", tmp_path / "out.csv"
    if kind == "link":
        target.write_text("kept")
    else:
        os.mkfifo(target)  # stands for /dev/null, which became a regular file
    if kind == "pipe":
        target.rename(output)
    else:
        output.symlink_to(target)
    before = output.lstat()
    with pytest.raises(RequestError, match=r"cannot write .*: a link, a pipe or a device; name a regular file"):
        write_whole(output, b"rows")
    assert output.lstat().st_ino == before.st_ino
    assert {file.name for file in tmp_path.iterdir()} <= {"target", "out.csv"}
