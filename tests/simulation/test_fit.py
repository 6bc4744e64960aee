"""The fit: planted efficiencies are found, and a held-out family has no say in its own times."""

import random
from dataclasses import replace

import numpy as np
import pytest

from favor.simulation.calibration import Efficiency, Training, from_json, shipped_calibration
from favor.simulation.devices import device
from favor.simulation.fitting.fit import (
    FULL_PRECISION,
    OPERATIONS,
    Observation,
    _folds,
    fit,
    fit_training,
    hold_out_families,
    times_on,
)
from favor.simulation.fitting.timm_tables import Traced
from favor.simulation.kernels import CLASSES, ELEMENT_BY_ELEMENT, Kernel

PLACE = device("rtx3090")


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
    return [Observation(n, s) for n, s in zip(networks, times_on(PLACE, networks, planted), strict=True)]


def test_planted_efficiencies_are_found(observations, planted):
    found = fit(observations, PLACE, "made up")
    assert found.classes["gemm"].matrix == pytest.approx(0.9, rel=0.05)
    assert found.classes["conv"].matrix == pytest.approx(0.35, rel=0.05)
    assert found.classes["rearrange"].memory == pytest.approx(0.6, rel=0.1)
    assert found.classes["depthwise_small"].lanes == pytest.approx(9.0, rel=0.05)
    times = times_on(PLACE, [each.traced for each in observations], found)
    assert times == pytest.approx([each.seconds for each in observations], rel=0.03)
    assert {name: found.classes[name].matrix for name in FULL_PRECISION} == FULL_PRECISION, (
        "set, as no table shows them"
    )


def test_operations_of_lanes_are_set_and_what_is_slow_beyond_them_is_held_up_by_memory():
    """Memory hides them on the device of the fit, so that its times do not tell them."""

    def copies(group: str, size: int) -> Observation:
        kernel = Kernel(group, lanes=size // 2, reads=((size, float("inf")),), written=size)
        return Observation(Traced(group, (kernel,), (1,)), 2 * size / (0.4 * PLACE.bandwidth))

    sizes = [round(1e8 * 1.1**step) for step in range(40)]
    found = fit([copies(group, size) for group in ("batch_norm", "rearrange") for size in sizes], PLACE, "made up")
    for group in ("batch_norm", "rearrange"):
        assert found.classes[group].memory == pytest.approx(0.4, rel=0.1)
    assert {name: found.classes[name].lanes for name in OPERATIONS} == pytest.approx(OPERATIONS)


def test_every_class_that_goes_element_by_element_has_its_operations():
    assert OPERATIONS.keys() == ELEMENT_BY_ELEMENT <= set(CLASSES)


def test_outliers_do_not_bend_the_fit(observations):
    bent = [
        replace(each, seconds=each.seconds * (5 if place % 12 == 0 else 1)) for place, each in enumerate(observations)
    ]
    assert fit(bent, PLACE, "made up").classes["conv"].matrix == pytest.approx(0.35, rel=0.1)


def test_a_held_out_family_has_no_say_in_its_own_times(observations):
    before = hold_out_families(observations, PLACE, folds=6)
    lies = [
        replace(each, seconds=each.seconds * 3) if each.traced.family == "family 2" else each for each in observations
    ]
    after = hold_out_families(lies, PLACE, folds=6)
    own = np.array([each.traced.family == "family 2" for each in observations])
    assert after[own] == pytest.approx(before[own], rel=1e-6)
    assert np.abs(after[~own] / before[~own] - 1).max() > 1e-3, "the others must have noticed the lies"


def test_planted_factors_of_training_are_found(observations, planted):
    slower = replace(planted, training=Training(convolutions=1.5, others=1.1)).in_training()
    networks = [each.traced for each in observations]
    steps = [Observation(n, s) for n, s in zip(networks, times_on(PLACE, networks, slower), strict=True)]
    found = fit_training(steps, PLACE, planted)
    assert (found.convolutions, found.others) == pytest.approx((1.5, 1.1), rel=0.01)


def test_in_training_convolutions_are_slowed_by_one_factor_and_the_rest_by_another(calibration):
    slower = replace(calibration, training=Training(convolutions=2.0, others=1.25)).in_training()
    for group in ("conv", "conv_pointwise", "conv_tf32", "depthwise_small", "layout", "batch_norm", "batch_norm_last"):
        assert slower.classes[group] == Efficiency(matrix=0.25, lanes=8.0, memory=0.4)
    for group in ("gemm", "bmm_full", "attention_flash", "layer_norm", "elementwise", "cat"):
        assert slower.classes[group] == Efficiency(matrix=0.4, lanes=5.0, memory=0.64)


def test_a_family_is_in_one_fold():
    families = ["a"] * 5 + ["b"] * 3 + ["c"] * 2 + ["a"]
    folds = _folds(families, 2)
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
