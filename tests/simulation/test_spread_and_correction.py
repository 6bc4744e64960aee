"""Intervals: wider where less is known; and what measurements of the device change."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from favor.records.schema import CardFields, Record, reading
from favor.simulation.correction import NO_CORRECTION, Correction, correction_from, measurements_on
from favor.simulation.devices import device
from favor.simulation.kernels import kernels_of
from favor.simulation.networks import network
from favor.simulation.spread import bounds, spread
from favor.simulation.study_correction import local_corrections
from favor.simulation.time_model import Estimate, estimate

BY_PRODUCTS = Estimate(seconds=1.0, matrix=1.0, lanes=0.0, memory=0.0, host=0.0)
BY_MEMORY = Estimate(seconds=1.0, matrix=0.0, lanes=0.0, memory=1.0, host=0.0)


def width(calibration, name, found=BY_PRODUCTS, correction=NO_CORRECTION, **as_run):
    return spread(found, device(name), calibration, correction, **as_run)


def test_the_device_of_the_fit_has_the_spread_of_held_out_families(calibration):
    assert width(calibration, "rtx3090") == pytest.approx(0.05)


def test_the_further_a_device_is_the_wider_is_the_interval(calibration):
    assert 0.05 < width(calibration, "rtx4090") < width(calibration, "a100") < width(calibration, "h100")


def test_only_what_bounds_the_time_makes_it_unsure(calibration):
    assert width(calibration, "h100", BY_MEMORY) < width(calibration, "h100", BY_PRODUCTS)


def test_memory_that_is_fast_for_its_lanes_makes_a_time_less_sure_and_the_other_way_round_does_not(calibration):
    as_on_the_reference = (0.05**2 + 0.1**2 + device("rtx4090").bandwidth_deviation ** 2) ** 0.5
    assert width(calibration, "rtx4090", BY_MEMORY) == pytest.approx(as_on_the_reference)
    assert as_on_the_reference < width(calibration, "v100", BY_MEMORY) < width(calibration, "a100", BY_MEMORY)


def test_a_guess_at_the_sustained_share_costs_more_than_a_measurement_of_it(calibration):
    assert width(calibration, "h100") < width(calibration, "h100-pcie")


def test_measurements_of_the_device_narrow_the_interval(calibration):
    corrected = Correction(factor=1.2, measurements=9, deviation=0.01)
    assert width(calibration, "h100", correction=corrected) < 0.06 < width(calibration, "h100")


def test_products_of_float32_which_no_table_shows_are_less_sure_everywhere(calibration):
    in_full = replace(BY_PRODUCTS, full=0.5)
    assert width(calibration, "rtx3090", in_full) == pytest.approx((0.05**2 + (0.5 * 0.2) ** 2) ** 0.5)
    assert width(calibration, "v100", in_full) > width(calibration, "v100")
    corrected = Correction(factor=1.2, measurements=9, deviation=0.01)
    plain, full = (width(calibration, "v100", found, corrected) for found in (BY_PRODUCTS, in_full))
    assert plain == full, "measurements of the card tell how fast its float32 is"


def test_all_devices_of_the_fit_have_the_spread_of_held_out_families(calibration):
    assert width(replace(calibration, devices=("rtx3090", "rtx4090")), "rtx4090") == pytest.approx(0.05)


def test_compiled_models_have_a_spread_of_their_own(calibration):
    assert width(calibration, "rtx3090", compiled=True) == pytest.approx(0.1)


def test_training_is_less_sure_than_inference(calibration):
    assert width(calibration, "rtx3090", training=True) > width(calibration, "rtx3090")


@pytest.mark.parametrize("as_run", [{"compiled": True}, {"training": True}], ids=str)
def test_a_device_that_the_fit_has_seen_only_in_eager_inference_is_less_sure_in_another_way_to_run(calibration, as_run):
    in_eager = replace(calibration, devices=("rtx3090", "rtx5090"))
    assert width(in_eager, "rtx5090", **as_run) > width(in_eager, "rtx3090", **as_run)
    assert width(in_eager, "rtx5090") == width(in_eager, "rtx3090")


def test_training_on_a_device_that_no_table_shows_is_less_sure_even_with_measurements_of_inference(calibration):
    corrected = Correction(factor=1.2, measurements=9, deviation=0.0)
    seen, unseen = (width(calibration, name, correction=corrected, training=True) for name in ("rtx3090", "h100"))
    assert unseen == pytest.approx((seen**2 + 0.15**2) ** 0.5)


@given(st.floats(1e-6, 1e6), st.floats(0.001, 1.0))
def test_an_interval_encloses_its_value_evenly_on_the_logarithm(value, deviation):
    low, high = bounds(value, deviation)
    assert low < value < high
    assert low * high == pytest.approx(value**2)


@given(st.lists(st.floats(0.2, 5.0), min_size=5, max_size=30), st.floats(0.5, 2.0))
def test_a_correction_scales_with_the_measurements(ratios, factor):
    found = correction_from(ratios)
    assert found.measurements == len(ratios)
    assert correction_from([factor * ratio for ratio in ratios]).factor == pytest.approx(factor * found.factor)
    assert min(ratios) - 1e-9 <= found.factor <= max(ratios) + 1e-9


def test_one_wild_measurement_hardly_moves_the_correction():
    assert correction_from([1.2, 1.2, 1.21, 1.19, 9.0]).factor == pytest.approx(1.2)


def measured(name: str, throughput: float, **conditions: object) -> Record:
    usual = {
        "device": "NVIDIA H100 80GB HBM3",
        "precision": "amp-fp16",
        "img_size": 64,
        "batch_size": 8,
        "runtime": "eager",
    }
    return Record(
        name=name,
        model=CardFields(),
        task="inference",
        source="measured",
        conditions=usual | conditions,
        metrics={"throughput": reading("throughput", throughput, method="a clock")},
    )


def test_only_like_measurements_of_the_device_count():
    like = measured("vit_ti16", 100.0, layout="nchw")
    others = [
        measured("vit_s16", 100.0, device="a100"),
        measured("vit_s16", 100.0, precision="fp32"),
        measured("vit_s16", 100.0, runtime="compile"),
        measured("vit_s16", 100.0, layout="nhwc"),
        structs.replace(like, name="vit_s16", source="simulated"),
        structs.replace(like, name="vit_s16", status="failed", reason="why not", metrics={}),
        structs.replace(like, name="vit_s16", source="published"),
    ]
    assert measurements_on(device("h100"), [like, *others], "amp") == [like]
    assert measurements_on(device("h100"), [like, *others], "amp", "compile") == [others[2]]


def test_a_study_of_a_card_that_is_a_third_slower_gives_that_factor(calibration):
    place, records = device("h100"), []
    for img_size in (32, 48, 64, 80, 96):
        kernels = kernels_of(network("vit_xs4", "inference", "amp", img_size).batches().trace_at(8).steps)
        seconds = estimate(place, kernels, calibration).seconds
        records.append(measured("vit_xs4", 8 / (1.33 * seconds), img_size=img_size))
    records.append(measured("of_a_plugin_that_is_not_loaded", 1.0))
    found = local_corrections(records, [place, device("t4")], "amp", calibration)
    assert found.keys() == {"h100"}
    assert found["h100"].factor == pytest.approx(1.33, rel=1e-6)
    assert local_corrections(records[:4], [place], "amp", calibration) == {}


def test_a_measurement_of_plain_attention_is_held_against_a_simulation_of_it(calibration):
    place = device("t4")
    records = []
    for img_size in (32, 48, 64, 80, 96):
        traced = network("vit_xs4", "inference", "amp", img_size, 1000, "plain").batches().trace_at(8)
        seconds = estimate(place, kernels_of(traced.steps), calibration).seconds
        records.append(measured("vit_xs4", 8 / seconds, img_size=img_size, device="t4", attention="plain"))
    found = local_corrections(records, [place], "amp", calibration)
    assert found["t4"].factor == pytest.approx(1.0, rel=1e-6)
