"""The commands: what they print, their JSON, and what they refuse."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from favor.cli import app
from favor.errors import RequestError
from favor.records import Record, append, example, reading
from favor.records.published import card_fields
from favor.records.schema import to_line

GIB = 2.0**30


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of three models measured on this machine."""
    folder = tmp_path_factory.mktemp("study")
    figures = {
        "vit_s16": (60.0, 0.30, 22_059_496),
        "tome_r8_s16": (80.0, 0.31, 22_059_496),
        "swin_ti": (40.0, 0.4, 28_288_354),
    }
    append(folder, [_measured(name, *numbers) for name, numbers in figures.items()])
    return folder


def _measured(name: str, throughput: float, memory: float, params: int, host: str | None = None) -> Record:
    return Record(
        name=name,
        model=card_fields()[name],
        task="inference",
        source="measured",
        conditions={"img_size": 224, "num_classes": 1000, "device": "cpu", "precision": "fp32"},
        metrics={
            "throughput": reading("throughput", throughput, throughput * 0.99, throughput * 1.01, method="test"),
            "inference_memory": reading("inference_memory", memory * GIB, method="test"),
            "latency_p50": reading("latency_p50", 1 / throughput, 0.9 / throughput, 1.1 / throughput, method="test"),
            "params": reading("params", params, method="test"),
        },
        environment={"host": host} if host else {},
        time="2026-11-15T21:40:00Z",
    )


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def run_json(*arguments: str) -> dict:  # type: ignore[type-arg]
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_recommend_works_at_once_and_says_what_it_rests_on() -> None:
    answer = run_json("recommend", "--prefer", "throughput", "--min-accuracy", "82")
    assert answer["favored"]["name"] == "focalnet_s"
    assert answer["ranked_by"] == "published front"
    assert "the paper's advice is used" in answer["notes"][0]
    assert {entry["name"] for entry in answer["flagged"]} == {"evit_s16", "evit_fuse_s16"}
    assert answer["relax"] is None


def test_recommend_knows_the_parameters_of_every_model_at_once() -> None:
    answer = run_json("recommend", "--prefer", "params", "--min-accuracy", "82", "--max-params", "21M")
    assert answer["favored"]["name"] == "cvt_13"
    assert answer["favored"]["metrics"]["params"]["value"] < 21e6
    assert {entry["name"] for entry in answer["flagged"]} <= {"linformer_s16"}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--max-memory", "1GiB"], "max_memory cannot be checked: no numbers for inference_memory"),
        (["--max-latency", "1s"], "max_latency cannot be checked: no numbers for latency_p50"),
        (["--prefer", "energy"], "energy cannot be ranked: no model has a number for energy_per_image"),
    ],
)
def test_what_cannot_be_checked_ends_with_code_1_and_what_to_run(arguments: list[str], why: str) -> None:
    shown = run("recommend", *arguments)
    assert shown.exit_code == 1
    assert why in shown.stdout
    assert "the limits" not in shown.stdout
    assert "Run: favor measure " in shown.stdout
    as_json = run("recommend", *arguments, "--json")
    assert as_json.exit_code == 1
    content = json.loads(as_json.stdout)
    assert (content["favored"], content["undecided"]) == (None, [why])


def test_no_model_and_no_limit_is_not_a_limit_that_nobody_keeps() -> None:
    done = run("recommend", "--among", "evit_s16")
    assert done.exit_code == 1
    assert done.stdout.startswith("No model can be favored.")


@pytest.fixture(scope="module")
def two_machines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models measured on one machine, two of them on a much faster one as well."""
    folder = tmp_path_factory.mktemp("two")
    at_home = [
        _measured(*row, host="home")
        for row in (("vit_s16", 60.0, 0.3, 9), ("swin_ti", 40.0, 0.4, 9), ("vit_ti16", 99.0, 0.1, 9))
    ]
    at_work = [_measured(*row, host="work") for row in (("swin_ti", 4000.0, 0.4, 9), ("nextvit_s", 5000.0, 0.4, 9))]
    append(folder, [*at_home, *at_work])
    return folder


def test_pareto_and_compare_do_not_mix_machines(two_machines: Path) -> None:
    shown = run("pareto", "--study", str(two_machines), "--json")
    points = {point["name"]: point["values"]["throughput"] for point in json.loads(shown.stdout)["points"]}
    assert points == {"vit_s16": 60.0, "swin_ti": 40.0, "vit_ti16": 99.0}
    assert "2 models on" in shown.stderr
    pair = run_json("compare", "swin_ti", "nextvit_s", "--study", str(two_machines))
    speed = next(entry for entry in pair["metrics"] if entry["metric"] == "throughput")
    assert (speed["a"]["value"], speed["b"]["value"]) == (4000.0, 5000.0)
    apart = run_json("compare", "vit_s16", "nextvit_s", "--study", str(two_machines))
    assert "throughput" not in {entry["metric"] for entry in apart["metrics"]}


def test_compare_and_recommend_use_the_same_machine(tmp_path: Path) -> None:
    params = {"vit_s16": 22_059_496, "swin_ti": 28_288_354, "vit_ti16": 5_717_416}
    speeds = {"vit_s16": 60.0, "swin_ti": 40.0, "vit_ti16": 99.0}
    at_work = [_measured(name, 10 * speed, 0.3, params[name], host="work") for name, speed in speeds.items()]
    in_attic = [_measured(name, speeds[name], 0.3, params[name], host="attic") for name in ("vit_s16", "swin_ti")]
    append(tmp_path, [*in_attic, *at_work])
    answer = run_json("recommend", "--prefer", "throughput", "--study", str(tmp_path))
    recommended = {entry["name"]: entry["metrics"]["throughput"]["value"] for entry in answer["runners_up"]}
    pair = run_json("compare", "vit_s16", "swin_ti", "--study", str(tmp_path))
    speed = next(entry for entry in pair["metrics"] if entry["metric"] == "throughput")
    assert (speed["a"]["value"], speed["b"]["value"]) == (600.0, 400.0)
    assert (recommended["vit_s16"], recommended["swin_ti"]) == (600.0, 400.0)
    chosen = run_json("compare", "vit_s16", "swin_ti", "--device", "attic", "--study", str(tmp_path))
    assert next(entry for entry in chosen["metrics"] if entry["metric"] == "throughput")["a"]["value"] == 60.0


def test_memory_that_was_extrapolated_is_marked(tmp_path: Path) -> None:
    memory = "train_memory_reference_batch"
    records = [
        Record(
            name=name,
            model=card_fields()[name],
            task="training",
            source="measured",
            conditions={"img_size": 224, "num_classes": 1000, "device": "cpu", "precision": "fp32"},
            metrics={memory: reading(memory, size * GIB, low * size * GIB, size * GIB, method="test")},
        )
        for name, size, low in (("vit_s16", 60.0, 0.9), ("swin_ti", 70.0, 1.0))
    ]
    append(tmp_path, records)
    lines = run("compare", "vit_s16", "swin_ti", "--study", str(tmp_path)).output.splitlines()
    assert sum(line.count("(extrapolated)") for line in lines) == 1
    shown = run("pareto", "params", memory, "--study", str(tmp_path)).output
    assert f"{memory}: measured and extrapolated; cpu, fp32" in shown


def test_pareto_counts_who_failed() -> None:
    excluded = run_json("pareto", "top1", "params")["excluded"]
    assert excluded["failed"] > 0


def test_correlate_between_devices(two_machines: Path) -> None:
    refused = run("correlate", "--devices", "params", "--study", str(two_machines))
    assert "does not depend on the device" in str(refused.exception)
    result = run_json("correlate", "--devices", "--study", str(two_machines))
    assert {
        pair["n"] for pair in result["pairs"] if "home" in pair["x"] + pair["y"] and "work" in pair["x"] + pair["y"]
    } == {1}
    assert isinstance(run("correlate", "--devices", "--datasets").exception, RequestError)


def test_recommend_uses_the_users_own_measurements(study: Path) -> None:
    answer = run_json("recommend", "--prefer", "throughput", "--min-accuracy", "82.3 %", "--study", str(study))
    assert answer["favored"]["name"] == "vit_s16"
    assert answer["favored"]["metrics"]["throughput"]["source"] == "measured"
    assert answer["favored"]["metrics"]["throughput"]["setting"] == "cpu, fp32"
    assert [entry["name"] for entry in answer["runners_up"]] == ["swin_ti"]
    assert answer["limits"] == [
        {
            "option": "min_accuracy",
            "metric": "top1",
            "bound": "min",
            "value": 82.3,
            "device": None,
            "p99": None,
            "unit": "%",
            "tested": None,
        }
    ]
    assert answer["why"]["binding"] == [{"option": "min_accuracy", "instead": "tome_r8_s16", "certain": True}]


def test_recommend_for_people_tells_the_reason_and_the_command(study: Path) -> None:
    done = run(
        "recommend", "--prefer", "throughput", "--min-accuracy", "82", "--max-memory", "1GiB", "--study", str(study)
    )
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Favored: tome_r8_s16")
    assert (
        "Why: tome_r8_s16 has the highest throughput (80 img/s) of the 3 models within the limits (of 3 models)"
        in done.stdout
    )
    assert 'Create it: favor.create_model("tome_r8_s16")' in done.stdout
    assert "note: throughput: measured; cpu, fp32" in done.stderr


def test_recommend_without_a_model_says_which_limit_to_relax(study: Path) -> None:
    done = run("recommend", "--min-accuracy", "82", "--max-memory", "300MiB", "--study", str(study))
    assert done.exit_code == 1
    assert "No model is known to meet the limits" in done.stdout
    assert "models lack the number that a limit needs" in done.stderr
    assert "not considered:" in done.stderr
    assert "Relax one limit: max_memory from 300 MiB to 308 MiB (by 8.00 MiB) gives vit_s16" in done.stdout


@pytest.mark.parametrize(
    ("asked", "moved"),
    [
        (["--max-params", "1M"], "max_params"),
        (["--max-memory", "200MiB"], "max_memory"),
        (["--min-accuracy", "99.5"], "min_accuracy"),
        (["--max-latency", "1ms"], "max_latency"),
    ],
)
def test_a_limit_relaxed_as_the_answer_says_is_kept(study: Path, asked: list[str], moved: str) -> None:
    among = ("recommend", "--study", str(study))
    refused = run(*among, *asked)
    assert refused.exit_code == 1
    way = re.search(rf"Relax one limit: {moved} from .* to (.*) \(by .*\) (gives|may give) (.*)", refused.stdout)
    assert way is not None, refused.stdout
    followed = run_json(*among, asked[0], way[1])
    if way[2] == "gives":
        assert followed["favored"]["name"] == way[3]
    else:
        assert " or ".join(choice["name"] for choice in followed["undecided_between"]) + " (undecided)" == way[3]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--max-memory", "1"], "--max-memory: cannot read '1': the unit is missing; write for example 1GiB"),
        (["--max-latency", "fast"], "--max-latency: cannot read 'fast'"),
        (["--min-accuracy", "0.82"], "did you mean 82 %"),
        (["--max-params", "30MB"], "write for example 30M"),
        (["--prefer", "latancy"], "did you mean 'latency'"),
        (["--device", "rtx309"], "did you mean 'rtx3090'"),
        (["--device", "t5"], "did you mean 't4'"),
        (["--dataset", "imagenet"], "unknown dataset with accuracies 'imagenet'"),
    ],
)
def test_nonsense_is_refused_with_an_example(arguments: list[str], why: str) -> None:
    done = run("recommend", *arguments)
    assert isinstance(done.exception, RequestError)
    assert why in str(done.exception)
    assert done.stdout == ""


def test_the_guide_is_figure_6() -> None:
    branches = run_json("recommend", "--guide")["branches"]
    assert {(branch["constraint"], branch["phase"]) for branch in branches} == {
        (constraint, phase) for constraint in ("speed", "memory") for phase in ("inference", "training")
    }
    memory = next(branch for branch in branches if (branch["constraint"], branch["phase"]) == ("memory", "inference"))
    assert "ViT" not in {entry["title"] for entry in memory["suggestions"]}
    assert {"CoaT", "NextViT"} <= {
        entry["title"] for entry in memory["suggestions"] if entry["how"] == "Hybrid Attention"
    }
    shown = run("recommend", "--guide")
    assert "Hybrid Attention" in shown.stdout
    # Table 7 lists XCiT, too, but its class is none of the figure's caption.
    assert "XCiT" not in {entry["title"] for branch in branches for entry in branch["suggestions"]}
    assert "evit_s16*" in shown.stdout
    assert "vit_s16*" not in shown.stdout.replace("evit_s16*", "").replace("dynamicvit_s16*", "")


def test_pareto_shows_the_front_with_its_probability(study: Path) -> None:
    result = run_json("pareto", "--study", str(study))
    members = {point["name"] for point in result["points"] if point["member"]}
    assert members == {"tome_r8_s16", "vit_s16", "swin_ti"}
    assert all(point["probability"] is not None for point in result["points"])
    shown = run("pareto", "top1", "throughput", "params", "--all", "--study", str(study))
    assert shown.exit_code == 0
    assert "Not on the front" in shown.stdout
    assert "throughput: measured; cpu, fp32" in shown.stderr


def test_pareto_without_numbers_says_how_to_get_them() -> None:
    done = run("pareto", "top1", "inference_memory")
    assert isinstance(done.exception, RequestError)
    # One model has both: its accuracy is the benchmark's, its speed the misnomer's, on 64 TPUs.
    assert "only one model has all of top1, throughput" in str(run("pareto").exception)
    done = run("pareto", "top1", "thruput")
    assert "did you mean 'throughput'" in str(done.exception)


def test_correlate_between_data_sets_and_metrics() -> None:
    pairs = run_json("correlate", "--datasets")["pairs"]
    found = {(pair["x"], pair["y"]): pair["spearman"] for pair in pairs}
    assert round(found["imagenet-1k", "flowers102"], 2) == 0.93
    assert "imagenet-1k" in run("correlate", "--datasets").stdout
    metrics = run_json("correlate", "params", "macs", "--without", "vit_b8")
    assert metrics["without"] == ["vit_b8"]
    everyone = run_json("correlate", "params", "macs")
    assert metrics["pairs"][0]["n"] < everyone["pairs"][0]["n"]
    time = run_json("correlate", "macs", "1/throughput")["pairs"][0]
    assert (time["y"], time["pearson"] > 0) == ("1/throughput", True)


def test_correlate_between_data_sets_honours_the_pipeline_and_between_devices_refuses_it() -> None:
    assert run_json("correlate", "--datasets", "--pipeline", "wtf-deit3")["source"] == "published"
    assert "unknown pipeline with accuracies" in str(run("correlate", "--datasets", "--pipeline", "nobody").exception)
    assert "--pipeline chooses accuracies" in str(run("correlate", "--devices", "--pipeline", "wtf-deit3").exception)


def test_disagree_warns(study: Path) -> None:
    result = run_json("disagree", "params", "throughput", "--among", "misnomer*")
    assert result["pairs"][0]["flipped"] > 0
    assert "Being efficient by one does not imply" in result["warning"]
    assert "Warning:" in run("disagree").stdout
    assert isinstance(run("disagree", "params", "throughput", "--img-size", "32").exception, RequestError)


def test_compare_judges_models_and_matches_families(study: Path) -> None:
    pair = run_json("compare", "vit_s16", "swin_ti", "--study", str(study))
    verdicts = {entry["metric"]: entry["verdict"] for entry in pair["metrics"]}
    judged = {metric: verdicts[metric] for metric in ("params", "throughput", "inference_memory", "top1")}
    assert judged == {"params": "a", "throughput": "a", "inference_memory": "a", "top1": "b"}
    shown = run("compare", "vit_s16", "swin_ti", "--study", str(study))
    assert "exact" in shown.stdout
    families = run_json("compare", "vit", "tome", "--study", str(study))
    assert families["comparisons"][0]["match"] == "parameter-matched"
    assert "did you mean 'swin_ti'" in str(run("compare", "vit_s16", "swin_it").exception)


def test_compare_flags_accuracies_of_other_configurations() -> None:
    pair = run_json("compare", "vit_s16", "evit_s16")
    assert list(pair["flagged"]) == ["evit_s16"]
    assert {entry["metric"]: entry["verdict"] for entry in pair["metrics"]}["top1"] == "untested"
    assert "Flagged: evit_s16: trained at keep rate 1" in run("compare", "vit_s16", "evit_s16").stdout
    families = run_json("compare", "vit", "evit")
    assert (list(families["flagged"]), families["comparisons"]) == (["evit_s16"], [])
    assert "Flagged and left out: evit_s16" in run("compare", "vit", "evit").stdout


@pytest.fixture
def example_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study of two models that comes with favor as `example:cpu`."""
    figures = {"vit_s16": (50.0, 0.3, 22_059_496), "swin_ti": (70.0, 0.4, 28_288_354)}
    measured = [_measured(name, *numbers, host="ours") for name, numbers in figures.items()]
    (tmp_path / "cpu.jsonl").write_bytes(b"".join(to_line(example.as_example(record, "cpu")) for record in measured))
    monkeypatch.setattr(example, "FOLDER", tmp_path)


@pytest.mark.usefixtures("example_cpu")
def test_the_study_that_comes_with_favor_decides_until_there_is_an_own_one(study: Path) -> None:
    asked = ("recommend", "--prefer", "throughput", "--min-accuracy", "82", "--max-memory", "1GiB")
    answer = run_json(*asked, "--study", "example:cpu")
    assert (answer["favored"]["name"], [one["name"] for one in answer["runners_up"]]) == ("swin_ti", ["vit_s16"])
    speed = answer["favored"]["metrics"]["throughput"]
    assert (speed["source"], speed["setting"], speed["provenance"]) == ("imported", "cpu, fp32", "example:cpu, swin_ti")
    assert answer["next_steps"][0] == "favor measure swin_ti vit_s16 --study my-study"
    assert run_json(*asked, "--study", "example:cpu", "--device", "cpu")["favored"]["name"] == "swin_ti"
    both = run_json(*asked, "--study", "example:cpu", "--study", str(study))
    assert (both["favored"]["name"], both["favored"]["metrics"]["throughput"]["source"]) == ("tome_r8_s16", "measured")
    assert "did you mean 'cpu'" in str(run("recommend", "--study", "example:cpus").exception)


def test_no_command_needs_torch() -> None:
    script = (
        "import sys\nfrom favor.cli import app\n"
        "sys.argv = ['favor', 'recommend', '--prefer', 'params', '--json']\n"
        "try:\n    app()\nfinally:\n    heavy = {'torch', 'timm', 'scipy', 'yaml', 'favor.simulation'}\n"
        "    assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["favored"]["name"]


def test_the_three_effects_of_the_x_formers_have_a_command() -> None:
    result = run("effects")
    assert result.exit_code == 0, result.output
    for change in ("Performer attention", "convolutional embedding", "rotary positions"):
        assert change in result.stdout
    effects = {entry["change"]: entry for entry in json.loads(run("effects", "--json").stdout)}
    assert effects["convolutional embedding"]["mean"] > 5, "Table 1: hybrids gain 5 to 17 points on CIFAR-10"
    assert effects["convolutional embedding"]["verdict"] == "better"


def test_effects_in_own_trainings_stand_before_those_in_print_and_are_not_mixed_with_them(tmp_path: Path) -> None:
    for dataset, gain in (("cifar10", 20.0), ("cifar10[400+100]", 5.0)):
        append(
            tmp_path,
            [
                Record(
                    name=name,
                    model=card_fields()[name],
                    task="accuracy",
                    source="measured",
                    conditions={"dataset": dataset, "pipeline": "mine@1", "img_size": 32, "final": True},
                    metrics={"top1": reading("top1", top1, method="test")},
                )
                for name, top1 in (("vix_vit", 50.0), ("vix_hybrid_vit", 50.0 + gain))
            ],
        )
    done = run("effects", "--study", str(tmp_path), "--json")
    embedding = [entry for entry in json.loads(done.stdout) if entry["change"] == "convolutional embedding"]
    assert [(entry["source"], entry["n"]) for entry in embedding] == [("measured", 1), ("published", 13)]
    assert embedding[0]["mean"] == 20.0
    assert "you also trained X-formers on cifar10[400+100]; choose with --dataset" in done.stderr
    told = run("effects", "--study", str(tmp_path)).stdout
    assert "+20 points" in told


def test_effects_name_the_training_that_counts_and_take_another(tmp_path: Path) -> None:
    trainings = (("mine@1", 100, 20.0), ("mine@1", 10, 5.0), ("other@1", 10, 9.0))
    append(
        tmp_path,
        [
            Record(
                name=name,
                model=card_fields()[name],
                task="accuracy",
                source="measured",
                conditions={
                    "dataset": "cifar10",
                    "pipeline": pipeline,
                    "img_size": 32,
                    "epochs": epochs,
                    "final": True,
                },
                metrics={"top1": reading("top1", top1, method="test")},
            )
            for pipeline, epochs, gain in trainings
            for name, top1 in (("vix_vit", 50.0), ("vix_hybrid_vit", 50.0 + gain))
        ],
    )
    study = ("--study", str(tmp_path))
    for options, mean, named in ((), 20.0, "pipeline mine@1, 100 epochs"), (("--pipeline", "other@1"), 9.0, "other@1"):
        done = run("effects", *study, *options, "--json")
        [own] = [entry for entry in json.loads(done.stdout) if entry["source"] == "measured"]
        assert (own["n"], own["mean"]) == (1, mean)
        assert named in done.stderr.partition("other pipelines")[0]
    for options, why in ((study, "unknown pipeline with accuracies"), ((), "no two X-formers of yours form a pair")):
        refused = CliRunner().invoke(app, ["effects", *options, "--pipeline", "none@1"])
        assert isinstance(refused.exception, RequestError)
        assert why in str(refused.exception)


def test_effects_take_the_best_seeds_if_asked(tmp_path: Path) -> None:
    trained = {"dataset": "cifar10", "pipeline": "mine@1", "img_size": 32, "final": True}
    records = [
        Record(
            name=name,
            model=card_fields()[name],
            task="accuracy",
            source="measured",
            conditions={**trained, "recipe.seed": seed},
            metrics={"top1": reading("top1", top1, method="test")},
        )
        for name, values in (("vix_vit", (50.0, 60.0)), ("vix_hybrid_vit", (70.0, 90.0)))
        for seed, top1 in enumerate(values)
    ]
    append(tmp_path, records)
    for seeds, mean in (("mean", 25.0), ("best", 30.0)):
        entries = run_json("effects", "--study", str(tmp_path), "--seeds", seeds)
        own = next(entry for entry in entries if entry["change"] == "convolutional embedding")
        assert (own["mean"], own["seeds"]) == (mean, seeds)
    assert "Seeds" in run("effects").stdout
