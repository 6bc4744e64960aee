"""`favor push` uploads what favor and timm load back, and says what the numbers on the card are."""

import json
from pathlib import Path

import pytest
import timm
import torch
import yaml
from msgspec.structs import replace
from typer.testing import CliRunner

import favor
from equality import images
from fake_hub import FakeHub
from favor.cli import app
from favor.errors import RequestError, WorkError
from favor.machine.device import find_device
from favor.records.schema import CardFields, Record, reading
from favor.records.store import append, read
from favor.sharing.push import Repository, write_study
from favor.study.options import study_from_options
from favor.study.plan import jobs_of
from favor.training.checkpoint import BEST, load_model_file, save_model
from favor.training.epoch_record import Subject
from favor.training.initial_weights import Start, start_from
from favor.training.predict import open_classifier
from favor.training.recipe import load_recipe
from favor.training.state import Trained

CPU = find_device("cpu")
ENVIRONMENT = {"host": "laptop", "device_name": "A CPU", "threads": 2, "torch": "2.15.0", "run": "a-run"}
EVALUATED = {**ENVIRONMENT, "evaluation_images": 360}


def made_run(study: Path, model: str = "vit_xs4", img_size: int = 32, pretraining: str = "none") -> Path:
    """A run of three epochs, of which the second was the best, with a measurement of the same model beside it."""
    recipe = load_recipe("laptop-digits", ["epochs=3", f"img_size={img_size}"])
    classes = tuple("abcde")
    trained = Trained(
        favor="0.1.0",
        run="0a1b",
        step=10,
        epochs=2.0,
        model=model,
        img_size=img_size,
        in_chans=3,
        classes=classes,
        dataset="digits",
        pretraining=pretraining,
        recipe=recipe,
        top1=81.5,
    )
    torch.manual_seed(1)
    network = favor.create_model(model, num_classes=5, img_size=img_size)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    (study / "runs" / "a-run").mkdir(parents=True)
    save_model(study / "runs" / "a-run" / BEST, network, trained)
    subject = Subject(model, recipe, "digits", Start(pretraining), None, "cpu", "cpu")
    fields = CardFields(family="vit", origin="own")
    for epoch, top1 in ((1, 60.0), (2, 81.5), (3, 80.0)):
        metrics = {
            "top1": reading("top1", top1, method="each of 360 images once"),
            "train_memory": reading("train_memory", 1e6 * epoch, method="a meter"),
        }
        conditions = {**subject.conditions(), "epochs": epoch, "final": epoch == 3}
        append(study, [Record(model, fields, "accuracy", "measured", conditions, metrics, environment=EVALUATED)])
    latency = {"latency_p50": reading("latency_p50", 0.0125, 0.0120, 0.0130, method="median of 80 passes")}
    conditions = {"img_size": img_size, "device": "cpu", "precision": "fp32", "batch_size": 1}
    append(study, [Record(model, fields, "inference", "measured", conditions, latency, environment=ENVIRONMENT)])
    return study / "runs" / "a-run"


def push(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["push", *map(str, words)])
    assert result.exit_code == code, result.output + str(result.exception)
    return result.stdout


def front_matter(card: str) -> dict[str, object]:
    return yaml.safe_load(card.split("---\n")[1])


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch, fake_hub: FakeHub) -> FakeHub:
    monkeypatch.setenv("HF_TOKEN", "hf_write")
    fake_hub.token = "hf_write"  # noqa: S105 - of the fake hub
    return fake_hub


def test_a_pushed_run_comes_back_as_it_was(tmp_path: Path, login: FakeHub) -> None:
    run = made_run(tmp_path / "mine")
    push(run, "--to", "hub:me/my-vit", "--private")
    assert login.repositories["me/my-vit"]["visibility"] == "private"
    assert {name.rpartition("/")[2] for name in login.files} == {
        *("README.md", "config.json", "model.safetensors", "records.jsonl")
    }
    model = favor.create_model("vit_xs4", pretrained="hub:me/my-vit").eval()
    _, weights = load_model_file(run / BEST)
    assert torch.equal(model.head.weight, weights["head.weight"])
    assert model.img_size == (32, 32)
    x = images(2, 3, 32, 32)
    pushed = open_classifier(Path("hub:me/my-vit"), CPU)
    assert pushed.classes == tuple("abcde")
    with torch.no_grad():
        assert torch.allclose(pushed.run(x), model(x), atol=1e-5)
    start = start_from(Path("hub:me/my-vit"), "vit_xs4")
    assert (start.pretraining, start.classes) == ("digits", tuple("abcde"))
    with pytest.raises(RequestError, match="hub:me/my-vit holds vit_xs4, not vit_s16"):
        favor.create_model("vit_s16", pretrained="hub:me/my-vit")


def test_finetune_starts_from_a_pushed_model(tmp_path: Path, login: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    push(made_run(tmp_path / "mine"), "--to", "hub:me/my-vit")
    asked: list[tuple[list[str], dict[str, object]]] = []
    monkeypatch.setattr("favor.cli.train.train_models", lambda names, *rest: asked.append((names, rest[-1])))
    assert CliRunner().invoke(app, ["finetune", "hub:me/my-vit", "--recipe", "laptop-digits"]).exit_code == 0
    assert (asked[0][0], asked[0][1]["init"]) == (["vit_xs4"], "hub:me/my-vit")


def test_int8_of_a_pushed_model_is_measured_as_that_of_a_run(tmp_path: Path, login: FakeHub) -> None:
    run = made_run(tmp_path / "mine")
    push(run, "--to", "hub:me/my-vit")
    int8 = {"runtimes": ["openvino"], "precisions": ["int8"], "num_classes": 5}
    asked = [
        study_from_options("measure", ["vit_xs4"], ["inference"], {**int8, "checkpoint": checkpoint})
        for checkpoint in ("hub:me/my-vit", str(run))
    ]
    assert [one.checkpoint for one in asked] == ["hub:me/my-vit", str(run.resolve())]
    assert asked[0].checkpoint_hash == asked[1].checkpoint_hash is not None
    [job] = jobs_of(asked[0])
    assert job.conditions["checkpoint"] == f"my-vit {asked[0].checkpoint_hash}"  # type: ignore[union-attr]
    with pytest.raises(RequestError, match=r"^--checkpoint: hub:me/my-vit is for 32 px and 5 classes; add --img-size"):
        study_from_options(
            "measure", ["vit_xs4"], ["inference"], {**int8, "checkpoint": "hub:me/my-vit", "num_classes": 10}
        )


def test_the_card_has_the_accuracy_of_these_weights_and_how_costs_were_measured(tmp_path: Path, login: FakeHub) -> None:
    push(made_run(tmp_path / "mine"), "--to", "hub:me/my-vit")
    card = login.files["me/my-vit/README.md"].decode()
    head = front_matter(card)
    assert (head["pipeline_tag"], head["library_name"]) == ("image-classification", "favor")
    (index,) = head["model-index"]  # type: ignore[misc]
    (result,) = index["results"]  # type: ignore[index]
    assert result["task"]["type"] == "image-classification"
    assert result["dataset"] == {"name": "digits", "type": "digits"}
    assert [(one["type"], one["value"]) for one in result["metrics"]] == [("accuracy", 81.5)]
    assert result["source"]["url"].endswith("me/my-vit/blob/main/records.jsonl")
    assert "the weights after 2 of 3 epochs" in card
    assert "slightly optimistic" in card
    assert "| Top-1 accuracy | 81.50 % | 77.16 % to 85.17 % | each of 360 images once |" in card
    row = next(line for line in card.splitlines() if "median of 80 passes" in line)
    for words in ("12.5 ms", "12.0 ms to 13.0 ms", "A CPU", "precision fp32", "batch_size 1"):
        assert words in row
    (tmp_path / "back.jsonl").write_bytes(login.files["me/my-vit/records.jsonl"])
    back = read(tmp_path / "back.jsonl").records
    assert [record.conditions.get("epochs") for record in back] == [2, 3, None]


def test_a_cost_of_a_busy_machine_does_not_replace_a_quiet_one_on_the_card(tmp_path: Path, login: FakeHub) -> None:
    run = made_run(tmp_path / "mine")
    quiet = read(tmp_path / "mine").records[-1]
    slow = {"latency_p50": reading("latency_p50", 0.9, method="median of 2 passes")}
    append(tmp_path / "mine", [replace(quiet, metrics=slow, environment={**quiet.environment, "flags": "busy"})])
    push(run, "--to", "hub:me/my-vit")
    card = login.files["me/my-vit/README.md"].decode()
    assert ("median of 80 passes" in card, "median of 2 passes" in card) == (True, False)


def test_weights_that_started_from_timm_s_name_them(tmp_path: Path, login: FakeHub) -> None:
    push(made_run(tmp_path / "mine", pretraining="timm:vit_tiny_patch16_224.augreg_in1k"), "--to", "hub:me/my-vit")
    head = front_matter(login.files["me/my-vit/README.md"].decode())
    assert head["base_model"] == "timm/vit_tiny_patch16_224.augreg_in1k"


def test_timm_loads_what_is_timm_s(tmp_path: Path, login: FakeHub) -> None:
    run = made_run(tmp_path / "mine", "resnet18", 64)
    push(run, "--to", "hub:me/my-resnet")
    head = front_matter(login.files["me/my-resnet/README.md"].decode())
    assert head["library_name"] == "timm"
    theirs = timm.create_model("hf_hub:me/my-resnet", pretrained=True).eval()
    ours = favor.create_model("resnet18", pretrained="hub:me/my-resnet").eval()
    x = images(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(theirs(x), ours(x))
    config = timm.data.resolve_model_data_config(theirs)
    assert (config["input_size"], config["mean"]) == ([3, 64, 64], [0.5, 0.5, 0.5])  # of the recipe
    assert theirs.pretrained_cfg["label_names"] == list("abcde")


def test_a_study_is_pushed_as_records_with_a_table(tmp_path: Path, login: FakeHub) -> None:
    study = tmp_path / "mine"
    made_run(study)
    failed = Record("vit_s4", CardFields(), "inference", "measured", {}, status="failed", reason="no memory")
    append(study, [failed])
    push(study, "--to", "hub:me/a-study")
    assert login.repositories["me/a-study"]["type"] == "dataset"
    card = login.files["datasets/me/a-study/README.md"].decode()
    assert "5 records of 2 models. 1 of them are failures" in card
    assert "| vit_xs4 | 80" in card
    assert login.files["datasets/me/a-study/records.jsonl"] == (study / "records.jsonl").read_bytes()


def test_a_study_on_two_data_sets_is_pushed_with_two_tables_and_each_note_once(tmp_path: Path, login: FakeHub) -> None:
    study = tmp_path / "mine"
    made_run(study)
    top1 = {"top1": reading("top1", 70.0, method="")}
    append(study, [Record("vit_xs4", CardFields(), "accuracy", "measured", {"dataset": "cifar10"}, top1)])
    result = CliRunner().invoke(app, ["push", str(study), "--to", "hub:me/a-study"])
    assert result.exit_code == 0, result.output
    assert login.files["datasets/me/a-study/README.md"].decode().count("## Results on") == 2
    assert result.stderr.count("setting: ") == 1


def test_a_dry_run_writes_the_files_and_uploads_nothing(
    tmp_path: Path, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made_run(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    told = json.loads(push(run, "--to", "hub:me/my-vit", "--dry-run", "--json"))
    assert (told["uploaded"], told["place"]) == (False, "runs/push/me/my-vit")
    for name, size in told["files"].items():
        assert (tmp_path / told["place"] / name).stat().st_size == size
    assert not fake_hub.asked
    again = CliRunner().invoke(app, ["push", str(run), "--to", "hub:me/my-vit", "--dry-run"])
    assert str(again.exception) == "runs/push/me/my-vit exists; remove it, or choose another name"


@pytest.mark.parametrize("address", ["me/my-vit", "hub:my-vit", "hub:me/a b", "hub:me/../x", "hub:"])
def test_a_wrong_name_is_refused_before_anything_is_done(tmp_path: Path, address: str) -> None:
    result = CliRunner().invoke(app, ["push", str(tmp_path / "nothing"), "--to", address])
    assert isinstance(result.exception, RequestError)
    assert "write hub:USER/NAME" in str(result.exception)


def test_what_is_neither_a_study_nor_a_run_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["push", str(tmp_path / "nothing"), "--to", "hub:me/my-vit"])
    assert isinstance(result.exception, RequestError)


@pytest.mark.parametrize("trouble", ["no token", "network", "middle", "offline"])
def test_an_upload_that_fails_is_one_line(
    tmp_path: Path, login: FakeHub, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _seconds: None)
    if trouble == "no token":
        monkeypatch.setenv("HF_TOKEN", "hf_read")
    if trouble == "network":
        login.gone = 0
    if trouble == "middle":
        login.gone = 2
    if trouble == "offline":
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    result = CliRunner().invoke(app, ["push", str(made_run(tmp_path / "mine")), "--to", "hub:me/my-vit"])
    assert isinstance(result.exception, WorkError)
    said = str(result.exception)
    assert said.startswith("hub:me/my-vit: ")
    assert "\n" not in said
    assert ("HF_TOKEN" if trouble == "no token" else "check the network") in said
    assert not login.files


def test_a_repository_that_favor_did_not_push_is_refused(fake_hub: FakeHub) -> None:
    fake_hub.files["me/other/model.safetensors"] = b"not a model"
    with pytest.raises(WorkError, match="hub:me/other: not a model that `favor push` uploaded"):
        favor.create_model("vit_xs4", pretrained="hub:me/other")
    with pytest.raises(WorkError, match="the model cannot be downloaded from me/none"):
        favor.create_model("vit_xs4", pretrained="hub:me/none")


def test_a_study_whose_records_name_no_data_set_is_pushed_without_their_table(tmp_path: Path, login: FakeHub) -> None:
    study = tmp_path / "mine"
    made_run(study)
    nameless = Record("vit_s4", CardFields(), "accuracy", "measured", {}, {"top1": reading("top1", 1.0, method="")})
    append(study, [nameless])
    push(study, "--to", "hub:me/a-study")
    assert login.files["datasets/me/a-study/README.md"].decode().count("## Results on") == 1


def test_texts_of_records_are_text_on_the_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("io.text_encoding", lambda encoding, _level=2: encoding or "ascii")  # the locale's
    machine = {"device_name": "ä <script>alert(1)</script> [x](javascript:1)"}
    record = Record("vit_s4", CardFields(), "inference", "measured", environment=machine)
    write_study([record], [("Results on a\n# heading", "")], Repository("me/x", "dataset"), tmp_path)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert r"Measured on ä &lt;script>alert(1)&lt;/script> \[x\](javascript:1) (" in card
    assert "## Results on a # heading\n" in card
