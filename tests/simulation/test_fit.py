"""The fit: planted efficiencies and rates are found, and what is held out has no say in its own times."""

import random
from dataclasses import replace

import numpy as np
import pytest

from favor.simulation.calibration import Calibration, Efficiency, Training, from_json, shipped_calibration
from favor.simulation.devices import Device, device
from favor.simulation.fitting.fit import (
    FULL_PRECISION,
    OPERATIONS,
    Fitted,
    Observation,
    family_folds,
    fit,
    fit_training,
    hold_out_device,
    hold_out_families,
)
from favor.simulation.fitting.timm_tables import Traced
from favor.simulation.kernels import CLASSES, ELEMENT_BY_ELEMENT, Kernel

PLACE, NEWER = device("rtx3090"), device("rtx5090").model_copy(update={"sustained_bandwidth": 1.0})


def made_up_network(draw: random.Random, family: str) -> Traced:
    far = float("inf")
    kernels = (
        Kernel("gemm", macs=draw.randint(10**10, 10**12), blocks=draw.randint(10**3, 10**5)),
        Kernel("conv", macs=draw.randint(10**10, 10**12), blocks=draw.randint(10**3, 10**5)),
        Kernel("rearrange", lanes=1, reads=((draw.randint(10**8, 10**10), far),), written=10**7),
        Kernel("depthwise_small", lanes=draw.randint(10**9, 10**11), reads=((10**6, far),), written=10**6),
    )
    return Traced(family, kernels, tuple(draw.randint(1, 30) for _ in kernels))


@pytest.fixture
def planted(calibration):
    efficient = {"gemm": Efficiency(0.9, 4.0, 0.85), "rearrange": Efficiency(0.5, 4.0, 0.6)}
    others = {"conv": Efficiency(0.35, 4.0, 0.85), "depthwise_small": Efficiency(0.5, 9.0, 0.85)}
    return replace(calibration, classes=calibration.classes | efficient | others)


@pytest.fixture
def observations(planted):
    draw = random.Random(1)  # noqa: S311 - made-up networks, no secrets
    networks = [made_up_network(draw, f"family {place % 6}") for place in range(60)]
    return timed([Observation(network, 0.0, PLACE) for network in networks], planted)


def timed(observations: list[Observation], calibration: Calibration, *described: Device) -> list[Observation]:
    """The observations with the times that a calibration gives, on devices as they really are."""
    truth = Fitted(calibration, {each.name: each for each in described})
    return [replace(o, seconds=s) for o, s in zip(observations, truth.seconds(observations), strict=True)]


def test_planted_efficiencies_are_found(observations, planted):
    fitted = fit(observations)
    found = fitted.calibration
    assert found.classes["gemm"].matrix == pytest.approx(0.9, rel=0.05)
    assert found.classes["conv"].matrix == pytest.approx(0.35, rel=0.05)
    assert found.classes["rearrange"].memory == pytest.approx(0.6, rel=0.1)
    assert found.classes["depthwise_small"].lanes == pytest.approx(9.0, rel=0.05)
    assert fitted.seconds(observations) == pytest.approx([each.seconds for each in observations], rel=0.03)
    assert {name: found.classes[name].matrix for name in FULL_PRECISION} == FULL_PRECISION, (
        "set, as no table shows them"
    )


def test_operations_of_lanes_are_set_and_what_is_slow_beyond_them_is_held_up_by_memory():
    """Memory hides them on the device of the fit, so that its times do not tell them."""

    def copies(group: str, size: int) -> Observation:
        kernel = Kernel(group, lanes=size // 2, reads=((size, float("inf")),), written=size)
        return Observation(Traced(group, (kernel,), (1,)), 2 * size / (0.4 * PLACE.bandwidth), PLACE)

    sizes = [round(1e8 * 1.1**step) for step in range(40)]
    found = fit([copies(group, size) for group in ("batch_norm", "rearrange") for size in sizes]).calibration
    for group in ("batch_norm", "rearrange"):
        assert found.classes[group].memory == pytest.approx(0.4, rel=0.1)
    assert {name: found.classes[name].lanes for name in OPERATIONS} == pytest.approx(OPERATIONS)


def test_every_class_that_goes_element_by_element_has_its_operations():
    assert OPERATIONS.keys() == ELEMENT_BY_ELEMENT <= set(CLASSES)


def test_outliers_do_not_bend_the_fit(observations):
    bent = [
        replace(each, seconds=each.seconds * (5 if place % 12 == 0 else 1)) for place, each in enumerate(observations)
    ]
    assert fit(bent).calibration.classes["conv"].matrix == pytest.approx(0.35, rel=0.1)


def test_a_held_out_family_has_no_say_in_its_own_times(observations):
    before = hold_out_families(observations, folds=6)
    lies = [
        replace(each, seconds=each.seconds * 3) if each.traced.family == "family 2" else each for each in observations
    ]
    after = hold_out_families(lies, folds=6)
    own = np.array([each.traced.family == "family 2" for each in observations])
    assert after[own] == pytest.approx(before[own], rel=1e-6)
    assert np.abs(after[~own] / before[~own] - 1).max() > 1e-3, "the others must have noticed the lies"


def test_planted_factors_of_training_are_found(observations, planted):
    slower = replace(planted, training=Training(convolutions=1.5, others=1.1)).in_training()
    found = fit_training(timed(observations, slower), planted)
    assert (found.convolutions, found.others) == pytest.approx((1.5, 1.1), rel=0.01)


@pytest.fixture
def on_two_devices(observations, planted) -> list[Observation]:
    """The same models on a second device, whose memory sustains a fifth less than its description says."""
    there = [replace(each, device=NEWER) for each in observations]
    return observations + timed(there, planted, NEWER.model_copy(update={"sustained_bandwidth": 0.8}))


def test_the_bandwidth_that_a_device_sustains_is_found_and_not_blamed_on_the_kernels(on_two_devices):
    fitted = fit(on_two_devices)
    assert fitted.devices["rtx5090"].sustained_bandwidth == pytest.approx(0.8, abs=0.06)
    assert fitted.devices["rtx3090"] == PLACE, "the first device is as described"
    assert fitted.calibration.classes["rearrange"].memory == pytest.approx(0.6, rel=0.15)


def test_kernels_of_a_newer_pytorch_have_their_own_factors(observations, planted):
    newer = [replace(each, torch_version=(2, 9)) for each in observations]
    slower = replace(planted, newer={"conv": 1.3})
    found = fit(observations + timed(newer, slower)).calibration
    assert found.newer["conv"] == pytest.approx(1.3, rel=0.05)
    assert found.newer.get("gemm", 1.0) == pytest.approx(1.0, abs=0.05)
    assert found.in_newer_torch().classes["conv"].matrix == pytest.approx(0.35 / 1.3, rel=0.07)


def test_a_held_out_device_gets_the_rates_of_the_others_and_has_no_say_in_its_own_times(on_two_devices):
    lies = [replace(each, seconds=3 * each.seconds) if each.device == NEWER else each for each in on_two_devices]
    fitted, held = hold_out_device(lies, "rtx5090", ["rtx3090"])
    assert "rtx5090" not in fitted.devices
    assert (held.sustained, held.sustained_bandwidth) == (PLACE.sustained, 1.0)
    assert fitted.calibration.classes["conv"].matrix == pytest.approx(0.35, rel=0.05)


def test_an_earlier_calibration_is_the_prior_of_what_a_sample_does_not_show(observations, planted):
    start = replace(planted, classes=planted.classes | {"softmax": Efficiency(0.5, 40.0, 0.33)})
    assert fit(observations, start=start).calibration.classes["softmax"].memory == pytest.approx(0.33, rel=0.01)


def test_in_training_convolutions_are_slowed_by_one_factor_and_the_rest_by_another(calibration):
    slower = replace(calibration, training=Training(convolutions=2.0, others=1.25)).in_training()
    for group in ("conv", "conv_pointwise", "conv_tf32", "depthwise_small", "layout", "batch_norm", "batch_norm_last"):
        assert slower.classes[group] == Efficiency(matrix=0.25, lanes=8.0, memory=0.4)
    for group in ("gemm", "bmm_full", "attention_flash", "layer_norm", "elementwise", "cat"):
        assert slower.classes[group] == Efficiency(matrix=0.4, lanes=5.0, memory=0.64)


def test_a_family_is_in_one_fold():
    families = ["a"] * 5 + ["b"] * 3 + ["c"] * 2 + ["a"]
    folds = family_folds(families, 2)
    assert {(family, fold) for family, fold in zip(families, folds, strict=True)} == {("a", 0), ("b", 1), ("c", 1)}


def test_the_shipped_calibration_is_complete_plausible_and_survives_its_file():
    shipped = shipped_calibration()
    assert from_json(shipped.to_json()) == shipped
    assert set(shipped.classes) == set(CLASSES)
    assert all(each.lanes > 0 and 0 < each.memory <= 0.95 for each in shipped.classes.values())
    assert all(0 < each.matrix <= 1 for name, each in shipped.classes.items() if name not in FULL_PRECISION)
    assert {name: shipped.classes[name].matrix for name in FULL_PRECISION} == FULL_PRECISION
    assert shipped.classes["gemm"].matrix > shipped.classes["bmm_unaligned"].matrix
    assert 0.02 < shipped.residuals.within < 0.15
