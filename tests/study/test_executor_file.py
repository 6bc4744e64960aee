"""The executor of a study: its section, options that change it, and its file."""

from pathlib import Path

import pytest

from favor.errors import RequestError
from favor.study import slurm_executor
from favor.study.allocation import allocations_of
from favor.study.executor_file import changed, save_executor, saved_executor
from favor.study.plan import jobs_of
from favor.study.ray_executor import RayExecutor, Resources
from favor.study.resolve import cluster_machine
from favor.study.schema import ExecutorOptions, Train, study_in
from favor.study.slurm_executor import SlurmExecutor, array_size
from favor.yaml_file import YamlFile
from study.made_up import a_study

TRAIN = Train(recipe="laptop-digits", data="digits")
COUNT, MEASURE, TRAINING = jobs_of(a_study(("swin_ti",), ("count", "inference", "accuracy"), train=TRAIN))


def section(text: str) -> ExecutorOptions:
    return study_in(YamlFile("my.yaml", f"models: [vit_s16]\nexecutor:\n{text}"), "mine").executor


def parameters(*jobs, **settings) -> dict:
    options = ExecutorOptions(kind="slurm", **settings)
    return SlurmExecutor(Path("/study"), a_study(), options).parameters(allocations_of(jobs, 4))


def test_a_study_file_says_who_runs_it() -> None:
    options = section("  kind: slurm\n  partition: gpu\n  memory: 64GiB\n  time_limit: 2 h\n  extra: [--qos=high]\n")
    assert (options.kind, options.partition, options.memory, options.time_limit) == ("slurm", "gpu", 64 * 2**30, 7200)
    assert study_in(YamlFile("my.yaml", "models: [vit_s16]\n"), "mine").executor.kind == "local"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("  kind: slrum\n", r"my.yaml:3: executor.kind: unknown executor 'slrum'; did you mean 'slurm'"),
        ("  kind: slurm\n  partitoin: gpu\n", r"my.yaml:4: executor.partitoin: .*did you mean 'partition'"),
        ("  kind: slurm\n  gpus_per_node: -1\n", r"my.yaml:4: executor.gpus_per_node: must be 0 or more, not -1"),
        ("  kind: slurm\n  time_limit: 60\n", r"my.yaml:4: executor.time_limit: 60 has no unit"),
        ("  kind: slurm\n  time_limit: 1 min\n", r"my.yaml:4: executor.time_limit: must be more than 90 s"),
        ("  kind: ray\n  partition: gpu\n", r"partition is not a setting of the executor ray"),
        ("  partition: gpu\n", r"partition is not a setting of the executor local"),
        ('  kind: slurm\n  partition: "gpu\\nrm -rf x"\n', r"executor.partition: write one word without spaces"),
        ("  kind: slurm\n  extra: [rm -rf x]\n", r"write options of sbatch, such as --qos=high, not 'rm -rf x'"),
        ('  kind: slurm\n  extra: ["--qos=a\\nrm"]\n', r"write options of sbatch"),
        ("  kind: slurm\n  extra: [--output=/etc/x]\n", r"--output is set by favor"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(RequestError, match=why) as refusal:
        section(text)
    assert "\n" not in str(refusal.value)


def test_options_change_the_section_and_another_executor_keeps_what_it_knows() -> None:
    options = section("  kind: slurm\n  partition: gpu\n  cpus_per_task: 8\n")
    told = changed(options, None, ["partition=big", "memory=4GiB", "extra=--qos=a", "extra=--nice"])
    assert (told.partition, told.memory, told.extra, told.cpus_per_task) == ("big", 2**32, ("--qos=a", "--nice"), 8)
    assert changed(options, "ray", ["address=auto"]) == ExecutorOptions(kind="ray", cpus_per_task=8, address="auto")
    assert changed(options, "local", []) == ExecutorOptions()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (["partition"], "write KEY=VALUE, such as --set partition=gpu"),
        (["partitoin=gpu"], "--set partitoin: unknown key 'partitoin'; did you mean 'partition'"),
        (["nodes=many"], "--set nodes: write a whole number"),
    ],
)
def test_a_wrong_option_is_refused(settings: list[str], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        changed(ExecutorOptions(), "slurm", settings)


def test_the_executor_of_a_folder_is_read_back(tmp_path: Path) -> None:
    options = ExecutorOptions(kind="slurm", partition="gpu", memory="4GiB", time_limit="90 min", extra=("--qos=a",))
    save_executor(tmp_path, options)
    assert saved_executor(tmp_path) == options
    assert saved_executor(tmp_path / "elsewhere") == ExecutorOptions()


def test_a_training_asks_for_a_task_per_gpu_and_a_measurement_for_one_gpu_on_an_exclusive_node() -> None:
    settings = {"nodes": 2, "gpus_per_node": 8, "cpus_per_task": 6}
    training, measured = parameters(TRAINING, **settings), parameters(MEASURE, COUNT, **settings)
    names = ("nodes", "ntasks_per_node", "gpus_per_node", "cpus_per_task", "exclusive")
    assert [training.get(name) for name in names] == [2, 8, 8, 6, None]
    assert [measured.get(name) for name in names] == [1, 1, 1, 6, True]
    assert parameters(MEASURE, exclusive=False).get("exclusive") is None
    assert parameters(COUNT).get("exclusive") is None
    assert parameters(COUNT).get("gpus_per_node") is None


def test_settings_become_options_of_sbatch() -> None:
    asked = parameters(
        TRAINING, partition="gpu", account="lab", constraint="a100", memory="4GiB", time_limit="90.5 min"
    )
    assert [asked[name] for name in ("partition", "account", "constraint", "time")] == ["gpu", "lab", "a100", 91]
    assert asked["additional_parameters"] == {"mem": "4096M"}
    assert parameters(TRAINING, at_once=3)["array_parallelism"] == 3
    assert parameters(TRAINING, extra=("--qos=a", "--nice"))["additional_parameters"] == {"qos": "a", "nice": True}


def test_a_measurement_on_ray_has_a_node_or_a_gpu_for_itself() -> None:
    (alone,), (training,) = allocations_of((MEASURE,), 1), allocations_of((TRAINING,), 1)
    on_cpus = RayExecutor(Path("/study"), a_study(), ExecutorOptions(kind="ray", cpus_per_task=2))
    assert on_cpus.resources(alone, 16.0) == Resources(16.0, 0.0, None)
    assert on_cpus.resources(training, 16.0) == Resources(2.0, 0.0, None)
    on_gpus = RayExecutor(Path("/study"), a_study(), ExecutorOptions(kind="ray", cpus_per_task=2, gpus_per_node=8))
    assert on_gpus.resources(alone, 16.0) == Resources(2.0, 1.0, None)
    assert on_gpus.resources(training, 16.0) == Resources(16.0, 8.0, None)


def test_a_cluster_is_one_machine_whose_device_its_nodes_name() -> None:
    gpus = cluster_machine(None, None, ExecutorOptions(kind="slurm", gpus_per_node=8, cpus_per_task=6))
    assert (gpus.device, gpus.label, gpus.device_name, gpus.threads, gpus.is_cluster) == ("cuda", "", "", 6, True)
    assert cluster_machine(None, 3, ExecutorOptions(kind="slurm")).threads == 3
    assert cluster_machine(None, None, ExecutorOptions(kind="slurm")).label == "cpu"
    with pytest.raises(RequestError, match="request no GPU; add --set gpus_per_node=N"):
        cluster_machine("cuda", None, ExecutorOptions(kind="slurm"))


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        (Resources(8.0, 0.0, None), True),
        (Resources(9.0, 0.0, None), False),
        (Resources(1.0, 1.0, None), False),
        (Resources(1.0, 0.0, 2**31), False),
    ],
)
def test_a_ray_task_fits_a_node_that_has_all_it_asks_for(asked: Resources, fits: bool) -> None:
    assert asked.fit({"CPU": 8.0, "memory": 2.0**30}) is fits


def test_a_site_without_job_arrays_gets_one_job_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_executor, "ask_slurm", lambda *command: "MaxArraySize            = 0\n")
    executor = SlurmExecutor(Path("/study"), a_study(), ExecutorOptions(kind="slurm"))
    allocations = allocations_of((COUNT, MEASURE), 2)
    assert [len(batch) for batch in executor.batches(allocations, array_size())] == [1, 1]
