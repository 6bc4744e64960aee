"""A model on devices, as records; and how good they are against published measurements."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from favor.errors import RequestError
from favor.measure.trace import Trace
from favor.records.schema import from_data, to_data
from favor.simulate import simulation
from favor.simulate.calibration import shipped_calibration
from favor.simulate.correction import Correction
from favor.simulate.devices import built_in_devices, device
from favor.simulate.evidence import Traced, rows_of, trace_row
from favor.simulate.fit import times_on
from favor.simulate.shipped import shipped_records, to_csv
from favor.simulate.simulation import Asked, simulate
from records.shared_folder import shared_file

SMALL = Asked(img_size=64)


def test_inference_is_a_simulated_record_with_intervals_that_can_be_stored():
    (record,) = simulate("vit_ti16", [device("a100")], SMALL, shipped_calibration())
    assert (record.source, record.status, record.task) == ("simulated", "ok", "inference")
    assert record.conditions["device"] == "a100"
    assert record.conditions["precision"] == "amp"
    assert from_data(to_data(record)) == record
    for metric in ("throughput", "latency_p50", "inference_memory", "inference_memory_best_batch"):
        found = record.metrics[metric]
        assert found.low <= found.value < found.high
    assert record.metrics["max_batch_size"].value > record.metrics["best_batch_size"].value >= 1


def test_one_trace_serves_all_devices_and_batch_sizes(monkeypatch):
    traced = []
    whole = simulation.network

    def counting(*arguments):
        subject = whole(*arguments)

        class Counting(type(subject)):
            def _trace(self, batch_size: int) -> Trace:
                traced.append(batch_size)
                return super()._trace(batch_size)

        return Counting(**vars(subject))

    monkeypatch.setattr(simulation, "network", counting)
    records = simulate("vit_ti16", built_in_devices(), SMALL, shipped_calibration())
    assert len(records) == len(built_in_devices())
    assert len(traced) == 2


def test_a_faster_card_is_faster():
    names = ("jetson-orin", "t4", "rtx3090", "a100", "h100")
    records = simulate("resnet18", [device(name) for name in names], Asked(batch_size=64), shipped_calibration())
    rates = [record.metrics["throughput"].value for record in records]
    assert rates == sorted(rates)
    assert rates[-1] > 3 * rates[1]


def test_training_takes_longer_and_more_memory_and_knows_its_epoch():
    (training,) = simulate("vit_ti16", [device("a100")], replace(SMALL, phase="training"), shipped_calibration())
    (inference,) = simulate("vit_ti16", [device("a100")], replace(SMALL, batch_size=64), shipped_calibration())
    assert training.conditions["batch_size"] == 64
    assert 2 * training.metrics["train_throughput"].value < inference.metrics["throughput"].value
    assert training.metrics["train_memory"].value > 2 * inference.metrics["inference_memory"].value
    step, hours = (training.metrics[name].value for name in ("train_step_time", "train_hours_per_epoch"))
    assert 0.3 * step * 1_281_167 / 64 / 3600 < hours < step * 1_281_167 / 64 / 3600
    assert training.metrics["train_max_batch_size"].value > 64


def test_a_batch_that_does_not_fit_is_a_record_that_says_so():
    asked = Asked(phase="training", batch_size=2048)
    card, large = simulate("vit_s16", [device("t4"), device("h200")], asked, shipped_calibration())
    assert card.status == "out_of_memory"
    assert "2048 images of 224 px need" in card.reason
    assert not card.metrics
    assert large.status == "ok"


def test_what_cannot_be_traced_is_a_failed_record_and_what_is_asked_wrongly_an_error(monkeypatch):
    from favor.errors import WorkError

    def broken(*arguments):
        raise WorkError("no counting rule for operator x")

    monkeypatch.setattr(simulation, "network", broken)
    (record,) = simulate("vit_ti16", [device("a100")], SMALL, shipped_calibration())
    assert record.status == "failed"
    assert "no counting rule" in record.reason
    monkeypatch.undo()
    with pytest.raises(RequestError, match="did you mean 'vit_ti16'"):
        simulate("vit_ti61", [device("a100")], SMALL, shipped_calibration())


def test_bf16_is_refused_where_the_card_has_no_units_for_it():
    with pytest.raises(RequestError, match="no units for bf16"):
        simulate("vit_ti16", [device("t4")], replace(SMALL, precision="bf16"), shipped_calibration())


@pytest.mark.parametrize("wrong", [{"phase": "infer"}, {"precision": "fp8"}, {"batch_size": 0}, {"optimiser": "sdg"}])
def test_wrong_requests_are_refused(wrong):
    with pytest.raises(RequestError):
        Asked(**wrong)


def test_a_correction_moves_times_and_not_memory():
    place = [device("h100")]
    (plain,) = simulate("vit_ti16", place, SMALL, shipped_calibration())
    slow = {"h100": Correction(factor=2.0, measurements=7, deviation=0.02)}
    (corrected,) = simulate("vit_ti16", place, SMALL, shipped_calibration(), slow)
    assert corrected.metrics["latency_p50"].value == pytest.approx(2 * plain.metrics["latency_p50"].value)
    assert "7 measurements" in corrected.metrics["latency_p50"].method
    assert corrected.metrics["inference_memory"] == plain.metrics["inference_memory"]


def test_what_is_shipped_is_what_is_simulated():
    shipped = {record.name: record for record in shipped_records("a100")}
    (simulated,) = simulate("vit_ti16", [device("a100")], Asked(), shipped_calibration())
    for metric in ("throughput", "latency_p50", "inference_memory", "best_batch_size", "max_batch_size"):
        expected = simulated.metrics[metric]
        assert shipped["vit_ti16"].metrics[metric].value == pytest.approx(expected.value, rel=1e-5), (
            "run benchmarks/make_simulated.py again"
        )
    assert "vit_ti16,a100,224,," in to_csv([simulated])


def test_every_model_and_device_is_shipped_and_an_alias_keeps_its_name():
    assert len(shipped_records("rtx3090")) > 200
    assert {record.conditions["device"] for record in shipped_records("A100-40gb")} == {"A100-40gb"}


def test_simulated_times_rank_networks_as_the_published_table_does(tmp_path):
    table = shared_file("reference", "timm_results", "benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv")
    wanted = "resnet18 resnet50 vit_tiny_patch16_224 vit_base_patch16_224 mobilenetv2_100 regnety_008 vgg11"
    by_name = {row.architecture: row for row in rows_of(table)}
    rows = [by_name[name] for name in wanted.split()]
    traced = [trace_row(row, tmp_path) for row in rows]
    assert [trace_row(row, tmp_path) for row in rows] == traced, "the cache gives back what was traced"
    assert all(isinstance(each, Traced) for each in traced)
    times = times_on(device("rtx3090"), traced, shipped_calibration())
    true = np.array([row.seconds for row in rows])
    assert spearmanr(times, true)[0] >= 0.95
    assert np.median(np.abs(times / true - 1)) <= 0.1
