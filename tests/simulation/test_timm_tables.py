"""What simulations are held against: timm's tables, and the script that prints how good they are."""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from favor.errors import RequestError
from favor.simulation.calibration import Calibration, shipped_calibration
from favor.simulation.devices import Device, device, known_as
from favor.simulation.fitting import timm_tables
from favor.simulation.fitting.fit import Fitted, Observation
from favor.simulation.fitting.timm_tables import Traced, rows_of, trace_all, trace_row
from records.shared_folder import shared_file

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT, PUBLISHED = BENCHMARKS / "simulation.py", BENCHMARKS / "published"
HEADER = (
    "model,infer_img_size,infer_samples_per_sec,infer_step_time,infer_batch_size,param_count,infer_gmacs,infer_macts"
)
ROWS = (
    "test_vit,160,200000.0,5.1,1024,0.37,0.04,0.48",
    "test_resnet,160,60000.0,17.1,1024,0.47,0.10,0.64",
    "resnet18,224,9000.0,28.4,256,11.69,1.82,2.48",
    "not_in_timm,224,100.0,9.9,256,1.0,1.0,1.0",
    "vit_base_patch16_224_sam,224,100.0,9.9,256,1.0,1.0,1.0",
    "vit_tiny_r_s16_p8_224,224,30000.0,8.5,256,6.34,0.43,1.85",
    "nest_tiny,224,1500.0,170.0,256,17.06,5.83,25.48",
)


def times_on(place: Device, traced: list[Traced], calibration: Calibration) -> np.ndarray:
    return Fitted(calibration, {}).seconds([Observation(each, 0.0, place) for each in traced])


def table(folder: Path, name: str) -> Path:
    file = folder / f"benchmark-{name}.csv"
    file.write_text("\n".join((HEADER, *ROWS)) + "\n")
    return file


def test_the_name_of_a_table_tells_how_its_rows_ran(tmp_path):
    rows = rows_of(table(tmp_path, "infer-amp-nhwc-pt291-cu130-pro6000maxq"))
    assert len(rows) == len(ROWS)
    assert all(row.channels_last and not row.training and not row.compiled for row in rows)
    assert rows[2].seconds == pytest.approx(256 / 9000)
    assert known_as(device("rtx-pro-6000-maxq"), rows[0].device)
    assert rows_of(table(tmp_path, "infer-amp-nchw-pt291-cu130-5090-dynamo"))[0].compiled


def test_a_table_of_a_cpu_is_refused(tmp_path):
    with pytest.raises(RequestError, match="only GPUs are simulated"):
        rows_of(table(tmp_path, "infer-fp32-nchw-pt240-cpu-i9_10940x-dynamo"))


def kernels(folder: Path, name: str) -> Traced:
    return trace_row(rows_of(table(folder, name))[2])


def test_channels_last_saves_turning_the_data(tmp_path):
    contiguous = kernels(tmp_path, "infer-amp-nchw-pt240-cu124-rtx4090")
    last = kernels(tmp_path, "infer-amp-nhwc-pt240-cu124-rtx4090")
    assert "layout" in {kernel.group for kernel in contiguous.kernels}
    assert not {"layout", "batch_norm"} & {kernel.group for kernel in last.kernels}
    assert last.family == contiguous.family == "resnet"
    slow, fast = times_on(device("rtx4090"), [contiguous, last], shipped_calibration())
    assert fast < 0.95 * slow


def test_norms_stay_in_half_precision_also_where_a_network_runs_a_part_of_itself_when_built(tmp_path):
    found = trace_row(rows_of(table(tmp_path, "infer-amp-nchw-pt240-cu124-rtx4090"))[5])
    (norm,) = (kernel for kernel in found.kernels if kernel.group == "layer_norm")
    assert norm.written == pytest.approx(256 * 50 * 192 * 2, rel=0.05), "two bytes a number"


def test_tables_of_others_are_as_pytorch_has_it(tmp_path):
    file = table(tmp_path, "infer-amp-nchw-pt240-cu124-rtx4090")
    timms, plain = (rows_of(file, by_timm=by_timm)[5] for by_timm in (True, False))
    (norm,) = (kernel for kernel in trace_row(plain).kernels if kernel.group == "layer_norm")
    assert norm.written == pytest.approx(256 * 50 * 192 * 4, rel=0.05), "norms in float32: four bytes a number"
    assert timms.conditions != plain.conditions, "or one's cache folder would serve the other"
    file = table(tmp_path, "infer-fp32-nchw-pt240-cu124-rtx4090")
    for by_timm, expected in ((True, {"tf32"}), (False, {"fp32", "tf32"})):
        traced = trace_row(rows_of(file, by_timm=by_timm)[5])
        assert {kernel.unit for kernel in traced.kernels if kernel.macs} == expected


def test_a_training_step_ends_in_the_update_of_timms_script(tmp_path):
    def sums_of_two(version: str) -> int:
        file = tmp_path / f"benchmark-train-amp-nchw-{version}-rtx3090.csv"
        header = "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count"
        file.write_text(f"{header}\nresnet18,1000.0,256.0,256,224,11.69\n")
        (row,) = rows_of(file)
        traced = trace_row(row)
        each = zip(traced.kernels, traced.counts, strict=True)
        return sum(count for kernel, count in each if kernel.group == "elementwise" and len(kernel.reads) > 1)

    # Momentum, its look ahead and the weight are summed up for each of the 62 tensors, or for all at once; scaling the
    # momentum has one tensor one by one, and many at once.
    assert sums_of_two("pt112-cu113") - sums_of_two("pt240-cu124") == 3 * 62 - 4


def test_before_pytorch_2_no_attention_is_fused(tmp_path):
    def groups(name: str) -> set[str]:
        return {kernel.group for kernel in trace_row(rows_of(table(tmp_path, name))[0]).kernels}

    assert "softmax" in groups("infer-amp-nchw-pt113-cu117-a100")
    assert "attention_flash" in groups("infer-amp-nchw-pt240-cu124-a100")
    old, new = (rows_of(table(tmp_path, f"infer-amp-nchw-{name}-a100"))[0] for name in ("pt113-cu117", "pt240-cu124"))
    assert old.conditions != new.conditions, "or one's cache folder would serve the other"


@pytest.mark.parametrize(
    ("name", "network"),
    [("pt106-cu92", "resnet50"), ("pt106-cu92", "regnety_040"), ("pt108-cu102", "swin_tiny_patch4_window7_224")],
)
def test_published_times_in_float32_on_a_v100_are_met(name, network):
    rows = rows_of(PUBLISHED / f"benchmark-infer-fp32-nchw-{name}-v100.csv")
    (row,) = [row for row in rows if row.architecture == network]
    (simulated,) = times_on(device("v100"), [trace_row(row)], shipped_calibration())
    assert simulated == pytest.approx(row.seconds, rel=0.25)


def test_attention_without_a_fused_kernel_is_that_of_the_version(tmp_path):
    old, new = (table(tmp_path, f"infer-amp-nchw-pt{version}-cu124-rtx4090") for version in ("240", "291"))
    units = [{k.unit for k in trace_row(rows_of(file)[6]).kernels if k.group.startswith("bmm")} for file in (old, new)]
    assert units == [{"fp16"}, {"tf32"}]


def test_an_unknown_precision_is_refused(tmp_path):
    with pytest.raises(RequestError, match="precision 'fp8' is not simulated"):
        rows_of(table(tmp_path, "infer-fp8-nchw-pt291-cu130-5090"))


@pytest.mark.parametrize(("precision", "units"), [("bf16", {"bf16"}), ("fp32", {"tf32"}), ("amp_bf16", {"bf16"})])
def test_the_precision_of_a_table_tells_the_units(tmp_path, precision, units):
    found = kernels(tmp_path, f"infer-{precision}-nchw-pt291-cu130-5090")
    assert {kernel.unit for kernel in found.kernels if kernel.macs} == units


@pytest.mark.filterwarnings("ignore:Mapping deprecated model name")
def test_the_script_prints_how_good_simulated_times_are_and_the_baselines(tmp_path, monkeypatch, capsys):
    file, cache = table(tmp_path, "infer-amp-nhwc-pt240-cu124-rtx4090"), tmp_path / "cache"
    arguments = ["--truth", str(file), "--on", "rtx4090", "--reference", str(file), "--cache", str(cache)]
    monkeypatch.setattr(sys, "argv", ["simulation.py", *arguments])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr().out
    assert "left out: 2 of 7 rows" in printed, "one is not in timm, the other has no such weights any more"
    assert "note:" not in printed
    cells = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in printed.splitlines() if line.startswith("|")}
    assert [cell.strip() for cell in cells["time of an image"]] == [
        *("networks", "Spearman", "median error", "p90 error", "in the 95 % interval")
    ]
    assert [cell.strip() for cell in cells["simulated"][:2]] == ["5", "1.0000"]
    assert {"multiply-adds", "activations", "bytes over bandwidth"} <= cells.keys()
    assert len(list(cache.glob("*.json"))) == 5


def test_a_cache_is_refused_to_a_table_under_other_conditions(tmp_path):
    wanted = ("infer-amp-nchw-pt240-cu124-rtx4090", "infer-amp-nhwc-pt240-cu124-rtx4090")
    first, other = (rows_of(table(tmp_path, name))[:1] for name in wanted)
    cache = tmp_path / "cache"
    traced = [list(trace_all(first, cache)) for _ in range(2)]
    assert traced[0] == traced[1]
    with pytest.raises(RequestError, match="has traces of inference amp-fp16 nchw"):
        list(trace_all(other, cache))


def test_a_cache_is_refused_to_other_rules(tmp_path, monkeypatch):
    rows = rows_of(table(tmp_path, "infer-amp-nchw-pt240-cu124-rtx4090"))[:1]
    list(trace_all(rows, tmp_path / "cache"))
    monkeypatch.setattr(timm_tables, "TRACING_CODE", ("simulation/kernels.py",))
    with pytest.raises(RequestError, match="by the rules [0-9a-f]{12}; choose another folder"):
        list(trace_all(rows, tmp_path / "cache"))


def test_a_table_without_rows_is_refused(tmp_path):
    file = tmp_path / "benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv"
    file.write_text(HEADER + "\n")
    with pytest.raises(RequestError, match="has no readable row"):
        rows_of(file)


def test_simulated_times_rank_networks_as_the_published_table_does(tmp_path):
    table = shared_file("reference", "timm_results", "benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv")
    wanted = "resnet18 resnet50 vit_tiny_patch16_224 mobilenetv2_100 vgg11"
    by_name = {row.architecture: row for row in rows_of(table)}
    rows = [by_name[name] for name in wanted.split()]
    traced = [trace_row(row, tmp_path) for row in rows]
    assert [trace_row(row, tmp_path) for row in rows] == traced, "the cache gives back what was traced"
    assert all(isinstance(each, Traced) for each in traced)
    times = times_on(device("rtx3090"), traced, shipped_calibration())
    true = np.array([row.seconds for row in rows])
    assert spearmanr(times, true)[0] >= 0.95
    assert np.median(np.abs(times / true - 1)) <= 0.1


def test_times_of_common_networks_compiled_on_another_gpu_are_met_by_its_specification():
    table = shared_file("reference", "timm_results", "benchmark-infer-amp-nchw-pt240-cu124-rtx4090-dynamo.csv")
    wanted = "resnet18 resnet50 vit_tiny_patch16_224 mobilenetv2_100 vgg11"
    by_name = {row.architecture: row for row in rows_of(table)}
    rows = [by_name[name] for name in wanted.split()]
    as_specified = device("rtx4090").model_copy(update={"sustained": 1.0})
    fused, eager = (
        times_on(as_specified, [trace_row(replace(row, compiled=compiled)) for row in rows], shipped_calibration())
        for compiled in (True, False)
    )
    true = np.array([row.seconds for row in rows])
    assert np.abs(fused / true - 1).max() <= 0.2
    assert (eager / true - 1).min() >= 0.2, "what is not fused is another program"


@pytest.mark.parametrize(("architecture", "is_turned"), [("resnet18", False), ("resnext101_32x32d", True)])
def test_compiled_convolutions_need_not_turn_their_data_unless_most_are_grouped(tmp_path, architecture, is_turned):
    row = rows_of(table(tmp_path, "infer-amp-nchw-pt240-cu124-rtx4090-dynamo"))[2]
    groups = {kernel.group for kernel in trace_row(replace(row, architecture=architecture)).kernels}
    assert ("layout" in groups) is is_turned
    assert "batch_norm" not in groups


def test_a_table_of_compiled_training_is_simulated_as_eager(tmp_path):
    inference, training = (
        table(tmp_path, "infer-amp-nchw-pt240-cu124-rtx4090-dynamo"),
        tmp_path / "benchmark-train-amp-nchw-pt240-cu124-rtx4090-dynamo.csv",
    )
    training.write_text("model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count\n"
                        "resnet18,1000.0,256.0,256,224,11.69\n")  # fmt: skip
    assert rows_of(inference)[0].conditions.startswith("compiled inference")
    assert rows_of(training)[0].conditions.startswith("training")
