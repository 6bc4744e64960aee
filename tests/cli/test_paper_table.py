"""`favor table --markdown` of a study as users make it: seeds, unfinished and failed training runs, two machines."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from favor.cli import app
from favor.records.schema import CardFields, Record, reading
from favor.records.store import append
from favor.training.epoch_record import Subject
from favor.training.initial_weights import Start
from favor.training.recipe import load_recipe

FIELDS = CardFields(family="vit", origin="own")
IMPORTED = "model,dataset,top1,pipeline,img_size,source\nmy_net,digits,83,theirs,32,our lab\n"


def on(host: str) -> dict[str, str | int]:
    return {"host": host, "device_name": f"CPU {host}", "threads": 2, "torch": "2.15.0"}


def trained(model: str, top1: float, seed: int, final: bool) -> Record:
    recipe = load_recipe("laptop-digits", ["epochs=2", "warmup_epochs=0.5", f"seed={seed}"])
    of_run = Subject(model, recipe, "digits", Start("none"), None, "cpu", "cpu").conditions()
    metrics = {"top1": reading("top1", top1, method="test")}
    conditions = {**of_run, "epochs": 2 if final else 1, "final": final}
    return Record(model, FIELDS, "accuracy", "measured", conditions, metrics, environment=on("a"))


def timed(model: str, seconds: float, host: str) -> Record:
    conditions = {"img_size": 32, "device": "cpu", "precision": "fp32", "batch_size": 1, "batch": "given"}
    metrics = {"latency_p50": reading("latency_p50", seconds, method="test")}
    return Record(model, FIELDS, "inference", "measured", conditions, metrics, environment=on(host))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table") / "mine"
    for model, top1 in (("vit_xs4", 80.0), ("linformer_xs4", 77.0)):
        append(folder, [trained(model, top1 + seed, seed, final=True) for seed in (0, 1, 2)])
        append(folder, [timed(model, 0.010, "a"), timed(model, 0.030, "b")])
    append(folder, [trained("hydra_xs4", 66.0, 0, final=False)])
    failed = Record("performer_xs4", FIELDS, "accuracy", "measured", status="failed", reason="diverged")
    append(folder, [failed])
    file = folder.parent / "results.csv"
    file.write_text(IMPORTED)
    assert CliRunner().invoke(app, ["import", "csv", str(file), "--study", str(folder)]).exit_code == 0
    return folder


def told(study: Path, *options: str) -> tuple[str, str]:
    words = ["table", str(study), "--markdown", "--metrics", "top1,latency_p50", *options]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.stdout, result.stderr


def test_the_table_has_the_study_s_own_data_set_and_says_what_it_leaves_out(study: Path) -> None:
    table, notes = told(study)
    assert "| vit_xs4 | **81.0" in table
    assert "hydra_xs4: its accuracy is left out because its training is unfinished (--unfinished includes it)" in notes
    assert "my_net: its accuracy is left out because it is from another pipeline: theirs (--any-pipeline" in notes
    assert "performer_xs4: no accuracy because its training failed: diverged" in notes
    assert "the study has CPU a, host a" in notes


def test_a_table_without_a_form_names_the_command_for_this_study(study: Path) -> None:
    result = CliRunner().invoke(app, ["table", str(study)])
    assert str(result.exception).endswith(f"favor table {study} --markdown")


def test_options_bring_in_what_was_left_out(study: Path) -> None:
    table, _ = told(study, "--any-pipeline")
    assert "| my_net | **83" in table
    table, _ = told(study, "--unfinished", "--any-pipeline")
    assert "| hydra_xs4 | 66" in table
    assert "| my_net | 83" in table, "the best of training runs of unequal length is not in bold"
    unequal = "training runs of unequal length: 1 to 2 epochs"
    for footnote in ("unfinished, after 1 epoch", "imported", "pipeline theirs", "pipeline laptop-digits@1", unequal):
        assert footnote in table


def test_one_of_two_machines_is_chosen_by_its_name(study: Path) -> None:
    table, notes = told(study, "--device", "CPU b")
    assert "| 30 ± ? |" in table
    assert "machine CPU b" in notes
    assert "choose with --device" not in notes


def test_a_published_accuracy_in_the_table_does_not_hide_that_the_study_s_own_is_left_out(tmp_path: Path) -> None:
    file, study = tmp_path / "results.csv", tmp_path / "it"
    file.write_text("model,dataset,top1,pipeline,img_size,source\nswin_ti,imagenet-1k,81.3,swin,224,a paper\n")
    imported = CliRunner().invoke(app, ["import", "csv", str(file), "--study", str(study)])
    assert imported.exit_code == 0, imported.output
    table, notes = told(study)
    assert "81.3" not in table
    pipeline = "it is from another pipeline: swin (--any-pipeline includes it)"
    assert f"swin_ti: its accuracy is left out because {pipeline}" in notes
    table, notes = told(study, "--any-pipeline")
    assert "81.3" in table
    assert "left out" not in notes
