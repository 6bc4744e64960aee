"""A model on devices, as records; and how good they are against published measurements."""

import csv
import gzip
import runpy
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from favor.errors import RequestError, WorkError
from favor.records.counted import counted_records
from favor.records.schema import from_data, to_data
from favor.simulation import simulation
from favor.simulation.calibration import Training, shipped_calibration
from favor.simulation.correction import NO_CORRECTION, Correction
from favor.simulation.devices import built_in_devices, device
from favor.simulation.kernels import CLASSES
from favor.simulation.memory import CONTEXT, FRAGMENTS, WORKSPACE
from favor.simulation.networks import network
from favor.simulation.shipped import COUNTED, FILE_NAME, shipped_records, to_csv
from favor.simulation.simulation import OnDevice, Passes, SimulationRequest, simulate
from favor.study.study_files import open_study
from favor.trace.operator_trace import Trace

SMALL = SimulationRequest(num_classes=10)


def test_inference_is_a_simulated_record_with_intervals_that_can_be_stored():
    (record,) = simulate("vit_xs4", [device("a100")], SMALL, shipped_calibration())
    assert (record.source, record.status, record.task) == ("simulated", "ok", "inference")
    assert record.conditions["device"] == "a100"
    assert record.conditions["precision"] == "amp-fp16"
    assert from_data(to_data(record)) == record
    for metric in ("throughput", "latency_p50", "inference_memory", "inference_memory_best_batch"):
        found = record.metrics[metric]
        assert found.low <= found.value < found.high
    assert record.metrics["max_batch_size"].value > record.metrics["best_batch_size"].value >= 1


@pytest.fixture
def traced(monkeypatch) -> list[int]:
    """The batch sizes of all traces that are made."""
    traced = []
    whole = simulation.network

    def counting(*arguments):
        subject = whole(*arguments)

        class Counting(type(subject)):
            def trace(self, batch_size: int) -> Trace:
                traced.append(batch_size)
                return super().trace(batch_size)

        return Counting(**vars(subject))

    monkeypatch.setattr(simulation, "network", counting)
    return traced


def test_one_trace_serves_all_devices_and_batch_sizes(traced):
    records = simulate("vit_xs4", built_in_devices(), SMALL, shipped_calibration())
    assert len(records) == len(built_in_devices())
    assert len(traced) == 1


def test_a_network_that_rounds_is_traced_once_at_each_batch_for_all_devices(traced):
    simulate("switch_xs4", [device("a100"), device("t4")], replace(SMALL, batch_size=3), shipped_calibration())
    assert {1, 3} <= set(traced)
    assert len(traced) == len(set(traced))


def test_a_faster_card_is_faster():
    names = ("jetson-orin", "t4", "rtx3090", "a100", "h100")
    records = simulate(
        "resnet18", [device(name) for name in names], SimulationRequest(batch_size=64), shipped_calibration()
    )
    rates = [record.metrics["throughput"].value for record in records]
    assert rates == sorted(rates)
    assert rates[-1] > 3 * rates[1]


def test_training_takes_longer_and_more_memory_and_knows_its_epoch():
    request = SimulationRequest(phase="training", reference_batch=64)
    (training,) = simulate("vit_xs4", [device("a100")], request, shipped_calibration())
    (inference,) = simulate("vit_xs4", [device("a100")], SimulationRequest(batch_size=64), shipped_calibration())
    assert training.conditions["batch_size"] == 64
    assert 2 * training.metrics["train_throughput"].value < inference.metrics["throughput"].value
    assert training.metrics["train_memory"].value > 2 * inference.metrics["inference_memory"].value
    step, hours = (training.metrics[name].value for name in ("train_step_time", "train_hours_per_epoch"))
    assert hours == pytest.approx(step * 1_281_167 / 64 / 3600)
    assert training.metrics["train_max_batch_size"].value > 64


def test_a_compiled_model_is_faster_and_says_what_it_runs_in():
    eager, compiled = (
        simulate("resnet18", [device("rtx4090")], SimulationRequest(batch_size=256, runtime=runtime), calibration)[0]
        for calibration in (shipped_calibration(),)
        for runtime in ("eager", "compile")
    )
    assert (eager.conditions["runtime"], compiled.conditions["runtime"]) == ("eager", "compile")
    assert compiled.request != eager.request, "two results, of which neither replaces the other"
    rates = [record.metrics["throughput"].value for record in (eager, compiled)]
    assert 1.1 < rates[1] / rates[0] < 3
    assert "fused as torch.compile does" in compiled.metrics["throughput"].method


def test_fine_tuning_is_fifty_epochs_of_the_benchmark_and_of_nothing_else():
    asked = SimulationRequest(phase="training")
    (paper,) = simulate("vit_xs4", [device("a100")], asked, shipped_calibration())
    (other,) = simulate("vit_xs4", [device("a100")], replace(asked, optimizer="sgd"), shipped_calibration())
    assert paper.metrics["finetune_time"].value == pytest.approx(50 * paper.metrics["train_hours_per_epoch"].value)
    assert "finetune_time" not in other.metrics


def test_the_factors_of_training_are_on_training_alone(calibration):
    bare = replace(calibration, tile_cycles=0.0, kernel_seconds=0.0)
    slower = replace(bare, training=Training(convolutions=2.0, others=2.0))
    for phase, metric, expected in (("training", "train_step_time", 2.0), ("inference", "latency_p50", 1.0)):
        once, twice = (
            simulate("vit_xs4", [device("t4")], SimulationRequest(phase=phase, batch_size=4096, num_classes=10), each)[
                0
            ].metrics
            for each in (bare, slower)
        )
        assert twice[metric].value / once[metric].value == pytest.approx(expected, rel=0.1)


def test_factors_of_newer_kernels_are_learned_in_eager_mode_and_on_it_alone(calibration):
    bare = replace(calibration, tile_cycles=0.0, kernel_seconds=0.0)
    newer = replace(bare, newer=dict.fromkeys(CLASSES, 2.0))
    for runtime, expected in (("eager", 2.0), ("compile", 1.0)):
        request = SimulationRequest(batch_size=4096, num_classes=10, runtime=runtime)
        old, new = (simulate("vit_xs4", [device("t4")], request, each)[0].metrics for each in (bare, newer))
        assert old["throughput"].value / new["throughput"].value == pytest.approx(expected, rel=0.01)


def test_the_best_batch_of_training_is_told_and_steps_are_of_the_reference_batch():
    request = SimulationRequest(
        phase="training", batch_size="best", num_classes=10, optimizer="sgd", reference_batch=4096
    )
    (record,) = simulate("vit_xs4", [device("t4")], request, shipped_calibration())
    best = record.environment["train_batch_size"]
    assert 1 < best <= record.metrics["train_max_batch_size"].value
    assert "batch_size" not in record.conditions
    assert record.conditions["micro_batch_size"] == best
    step, rate = (record.metrics[name] for name in ("train_step_time", "train_throughput"))
    assert rate.value == pytest.approx(4096 / step.value)
    assert f"4096 images by accumulation of {best}, sgd" in step.method
    (given,) = simulate("vit_xs4", [device("t4")], replace(request, batch_size=best), shipped_calibration())
    assert "train_batch_size" not in given.environment
    passes = Passes(network("vit_xs4", "training", "amp", num_classes=10), "sgd")
    seconds = OnDevice(passes, device("t4"), shipped_calibration(), NO_CORRECTION).seconds(best)
    assert given.metrics["train_step_time"].value == pytest.approx(seconds)
    assert given.metrics["train_throughput"].value == pytest.approx(best / seconds)
    assert f"batch size {best}, sgd" in given.metrics["train_step_time"].method
    assert given.metrics["train_hours_per_epoch"].value == pytest.approx(record.metrics["train_hours_per_epoch"].value)


def test_the_best_batch_of_inference_is_a_number_of_its_own():
    (record,) = simulate("vit_xs4", [device("t4")], SMALL, shipped_calibration())
    assert "train_batch_size" not in record.environment


def test_counters_on_the_cpu_are_no_kernels_of_a_step():
    assert len(Passes(network("vit_xs4", "training", "amp"), "adamw").update_kernels) == 8


def test_sixty_three_images_train_no_slower_than_sixty_four_on_a_v100():
    """A weight's gradient sums over an odd number of tokens, and is of even lines nevertheless."""
    passes = Passes(network("vit_ti16", "training", "amp"), "sgd")
    placed = OnDevice(passes, device("v100"), shipped_calibration(), NO_CORRECTION)
    assert placed.seconds(63) < placed.seconds(64)


def test_an_optimizer_is_issued_twice_as_fast_as_a_network():
    passes = Passes(network("vit_xs4", "training", "amp"), "lamb")
    placed = OnDevice(passes, device("h100"), shipped_calibration(), NO_CORRECTION)
    update = placed.seconds(8) - placed.pass_estimate(8).seconds
    assert update == pytest.approx(len(passes.update_kernels) * device("h100").launch_us * 1e-6 / 2, rel=0.02)


def test_gathering_gradients_over_batches_saves_updates():
    passes = Passes(network("vit_xs4", "training", "amp"), "adamw")
    placed = OnDevice(passes, device("a100"), shipped_calibration(), NO_CORRECTION)
    update = placed.seconds(64) - placed.accumulated_seconds(64, 128) / 2
    assert update > 0
    assert placed.accumulated_seconds(64, 640) == pytest.approx(10 * placed.seconds(64) - 9 * 2 * update)


def test_a_batch_that_does_not_fit_is_a_record_that_says_so():
    request = SimulationRequest(phase="training", batch_size=2048)
    card, large = simulate("vit_s16", [device("t4"), device("h200")], request, shipped_calibration())
    assert card.status == "out_of_memory"
    assert "2048 images of 224 px need" in card.reason
    assert not card.metrics
    assert large.status == "ok"


def test_a_batch_between_those_on_lines_fits_where_its_memory_does():
    peak = Passes(network("switch_xs4", "inference", "amp"), "lamb").footprint.peak(1003)
    room = (peak + WORKSPACE) / (1 - FRAGMENTS) + CONTEXT
    card = device("t4").model_copy(update={"memory_gib": room / 2**30 + 1e-6})
    (fits,) = simulate("switch_xs4", [card], SimulationRequest(batch_size=1003), shipped_calibration())
    assert (fits.status, fits.metrics["max_batch_size"].value) == ("ok", 1003)


def test_what_cannot_be_traced_is_a_failed_record_and_what_is_asked_wrongly_an_error(monkeypatch):
    def broken(*arguments):
        raise WorkError("no counting rule for operator x")

    monkeypatch.setattr(simulation, "network", broken)
    (record,) = simulate("vit_xs4", [device("a100")], SMALL, shipped_calibration())
    assert record.status == "failed"
    assert "no counting rule" in record.reason
    monkeypatch.undo()
    with pytest.raises(RequestError, match="did you mean 'vit_ti16'"):
        simulate("vit_ti61", [device("a100")], SMALL, shipped_calibration())


def test_a_network_that_fails_at_one_batch_size_only_is_a_failed_record(monkeypatch):
    whole = simulation.network

    def single(*arguments):
        subject = whole(*arguments)

        class Single(type(subject)):
            def trace(self, batch_size: int) -> Trace:
                if batch_size == 1:
                    raise WorkError("an image alone has no neighbors")
                return super().trace(batch_size)

        return Single(**vars(subject))

    monkeypatch.setattr(simulation, "network", single)
    (record,) = simulate("switch_xs4", [device("a100")], replace(SMALL, batch_size=8), shipped_calibration())
    assert record.status == "failed"
    assert "no neighbors" in record.reason


def test_bf16_is_refused_where_the_card_has_no_units_for_it():
    with pytest.raises(RequestError, match="does not support bf16"):
        simulate("vit_xs4", [device("t4")], replace(SMALL, precision="bf16"), shipped_calibration())


@pytest.mark.parametrize(
    "wrong",
    [
        *({"phase": "infer"}, {"precision": "fp8"}, {"batch_size": 0}, {"batch_size": 2**31}, {"optimizer": "sdg"}),
        *({"runtime": "compiled"}, {"runtime": "compile", "phase": "training"}),
    ],
)
def test_wrong_requests_are_refused(wrong):
    with pytest.raises(RequestError):
        SimulationRequest(**wrong)


def test_a_correction_moves_times_and_not_memory():
    place = [device("h100")]
    (plain,) = simulate("vit_xs4", place, SMALL, shipped_calibration())
    slow = {"h100": Correction(factor=2.0, measurements=7, deviation=0.02)}
    (corrected,) = simulate("vit_xs4", place, SMALL, shipped_calibration(), slow)
    assert corrected.metrics["latency_p50"].value == pytest.approx(2 * plain.metrics["latency_p50"].value)
    assert "7 measurements" in corrected.metrics["latency_p50"].method
    assert corrected.metrics["inference_memory"] == plain.metrics["inference_memory"]


OUT_OF_DATE = "run benchmarks/make_simulated.py again"


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("vit_ti16", SimulationRequest()),
        ("resnet18", SimulationRequest()),
        ("resnet18", SimulationRequest(runtime="compile")),
        ("vit_ti16", SimulationRequest(phase="training", batch_size="best")),
    ],
    ids=str,
)
def test_what_is_shipped_is_what_is_simulated_on_every_device(name, request_):
    for simulated in simulate(name, built_in_devices(), request_, shipped_calibration()):
        place = str(simulated.conditions["device"])
        (shipped,) = (record for record in shipped_records(place) if record.request == simulated.request)
        assert shipped.conditions == simulated.conditions
        assert shipped.environment == simulated.environment
        for metric, found in shipped.metrics.items():
            expected = simulated.metrics[metric]
            for end in ("value",) if expected.low is None else ("value", "low", "high"):
                assert getattr(found, end) == pytest.approx(getattr(expected, end), rel=1e-5), OUT_OF_DATE


def test_every_model_of_the_zoo_is_shipped_as_it_is_now():
    text = (files("favor.simulation") / FILE_NAME).read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    now = {record.name: record.metrics["macs"].value for record in counted_records()}
    table_5 = {name: now[name] for name in open_study("full")[0].models}
    # GFNet's Fourier transform of 32 px refuses the channels-last layout that compiled models are traced in.
    compiled = {name: macs for name, macs in now.items() if name != "gfnet_xs4"}
    runs = {("inference", "eager"): now, ("inference", "compile"): compiled, ("training", "eager"): table_5}
    for run, models in runs.items():
        shipped = [row for row in rows if (row["device"], row["task"], row["runtime"]) == ("h200", *run)]
        assert {row["name"]: int(row[COUNTED]) for row in shipped} == models, OUT_OF_DATE
    assert all(int(row[COUNTED]) == now[row["name"]] for row in rows), OUT_OF_DATE
    assert {row["device"] for row in rows} == {each.name for each in built_in_devices()}
    assert len(gzip.compress(text.encode())) < 1e6


def test_a_shipped_line_reads_back_as_it_was_written_and_an_alias_keeps_its_name():
    text = to_csv(shipped_records("a100"))
    lines = (files("favor.simulation") / FILE_NAME).read_text(encoding="utf-8").splitlines()
    assert text.splitlines()[1:] == [line for line in lines if line.split(",")[1] == "a100"]
    assert {record.conditions["device"] for record in shipped_records("A100-40gb")} == {"A100-40gb"}


def test_the_tables_of_the_documentation_are_those_of_what_is_shipped(capsys):
    root = Path(__file__).parents[2]
    script = runpy.run_path(str(root / "benchmarks" / "simulation_tables.py"))
    script["front"]()
    script["hardware"]()
    printed = capsys.readouterr().out
    text = (root / "docs" / "simulation-accuracy.md").read_text(encoding="utf-8")
    rows = [line for line in printed.splitlines() if line.startswith("| ")]
    assert len(rows) > 5
    assert [row for row in rows if row not in text] == []
    assert "A100 and RTX 3090, 245 models" in printed
