"""Times: monotone in what a device has, divided into what bounds them, and waiting for the slower of two."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from favor.simulation.calibration import shipped_calibration
from favor.simulation.devices import device
from favor.simulation.kernels import Kernel, kernels_of
from favor.simulation.time_model import (
    FIT_PRODUCTS,
    demands_on,
    estimate,
    estimate_counted,
    kernel_seconds,
    product_exponent,
)

BIG_PRODUCT = Kernel("gemm", macs=10**12, blocks=10**5, reads=((10**6, float("inf")),), written=10**6)
BIG_COPY = Kernel("copy", lanes=10**6, reads=((10**9, float("inf")),), written=10**9)


def test_a_large_product_takes_its_arithmetic_over_the_sustained_peak_and_efficiency(calibration):
    place = device("rtx3090")
    expected = 2e12 / (place.peak_flops("fp16") * place.sustained * 0.5)
    assert estimate(place, [BIG_PRODUCT], calibration).seconds == pytest.approx(expected, rel=0.01)


def test_a_large_copy_takes_its_bytes_over_the_bandwidth_and_efficiency(calibration):
    place = device("rtx3090")
    assert estimate(place, [BIG_COPY], calibration).seconds == pytest.approx(2e9 / (936e9 * 0.8), rel=0.01)


def test_memory_that_sustains_less_of_its_bandwidth_is_slower_and_products_are_not(calibration):
    usual = device("rtx3090")
    slow = usual.model_copy(update={"sustained_bandwidth": 0.8})
    for kernel, ratio in ((BIG_COPY, 1.25), (BIG_PRODUCT, 1.0)):
        before, after = (estimate(place, [kernel], calibration).seconds for place in (usual, slow))
        assert after / before == pytest.approx(ratio, rel=0.02)


@given(st.sampled_from(["bandwidth_gb_s", "clock_mhz", "sustained", "sustained_bandwidth"]), st.floats(1.01, 1.4))
def test_a_better_device_is_never_slower(name, factor):
    place = device("t4")
    better = place.model_copy(update={name: getattr(place, name) * factor})
    kernels = [BIG_PRODUCT, BIG_COPY, Kernel("softmax", lanes=10**8, reads=((10**7, 5e6),), written=10**7)]
    calibration = shipped_calibration()
    assert estimate(better, kernels, calibration).seconds <= estimate(place, kernels, calibration).seconds


def test_the_parts_of_a_time_sum_to_it(calibration, small_vit):
    found = estimate(device("a100"), kernels_of(small_vit.batches().trace_at(4096).steps), calibration)
    assert found.matrix + found.lanes + found.memory + found.host == pytest.approx(found.seconds, rel=1e-6)
    assert min(found.matrix, found.lanes, found.memory) > 0


def test_small_kernels_wait_for_the_host_and_large_ones_do_not(calibration):
    place = device("rtx3090")
    tiny = [Kernel("elementwise", lanes=10, reads=((10, float("inf")),), written=10)] * 100
    assert estimate(place, tiny, calibration).seconds == pytest.approx(100 * place.launch_us * 1e-6, rel=0.02)
    large = estimate(place, [BIG_COPY] * 10, calibration)
    assert large.host < 0.01 * large.seconds
    # The host issues all small ones while the large one runs.
    hidden = estimate(place, [BIG_COPY, *tiny[:50]], calibration)
    assert hidden.seconds == pytest.approx(estimate(place, [BIG_COPY], calibration).seconds, rel=0.05)


def test_counted_and_listed_kernels_take_equally_long(calibration):
    place = device("a100")
    listed = estimate(place, [BIG_COPY, BIG_PRODUCT, BIG_COPY], calibration)
    counted = estimate_counted(place, [BIG_COPY, BIG_PRODUCT], [2, 1], calibration)
    assert counted.seconds == pytest.approx(listed.seconds, rel=0.01)


def test_what_was_just_touched_comes_from_the_cache_if_it_holds_it(calibration):
    near = replace(BIG_COPY, reads=((10**7, 1e7),), written=0)
    far = replace(BIG_COPY, reads=((10**7, float("inf")),), written=0)
    for name, gain in (("rtx3090", 1.0), ("rtx4090", 2.0)):
        times = [kernel_seconds(demands_on(device(name), [k]), calibration)[0][0] - 1e-6 for k in (near, far)]
        assert times[1] / times[0] > gain


def test_a_tensor_that_the_cache_cannot_hold_is_gone_when_it_is_read_from_its_start(calibration):
    place = device("a100")
    kept, gone = (demands_on(place, [Kernel("copy", reads=((round(size * place.cache), 0.0),))]) for size in (0.1, 10))
    assert kept.cached[0] == pytest.approx(kept.memory[0], rel=0.02)
    assert gone.cached[0] < 0.02 * gone.memory[0]


def test_elements_take_operations_of_the_lanes_and_windows_their_loads():
    """So a card with 64 lanes a multiprocessor takes twice as long for the same elements, and as long for windows."""
    narrow, doubled = (device("a100").model_copy(update={"tflops": peaks}) for peaks in _narrow_and_doubled())
    for group, ratio in (("activation", 2.0), ("batch_norm", 2.0), ("depthwise_small", 1.0)):
        slow, fast = (demands_on(place, [Kernel(group, lanes=10**9)]).lanes[0] for place in (narrow, doubled))
        assert slow == pytest.approx(ratio * fast)
    assert demands_on(narrow, [Kernel("activation", lanes=10**9)]).lanes[0] == pytest.approx(2e9 / 19.5e12)


def _narrow_and_doubled():
    peaks = device("a100").tflops
    return peaks, peaks.model_copy(update={"fp32": 2 * peaks.fp32})


def test_a_card_without_flash_attention_runs_the_memory_efficient_one():
    attention = Kernel("attention_flash", macs=10**9, lanes=10**6, blocks=100)
    assert demands_on(device("t4"), [attention]).groups == ("attention_efficient",)
    assert demands_on(device("a100"), [attention]).groups == ("attention_flash",)


def full(group: str, unit: str = "fp32") -> Kernel:
    return Kernel(group, macs=10**12, unit=unit, blocks=10**5)


def test_a_time_that_the_host_sets_is_the_hosts_and_not_of_what_runs_meanwhile(calibration):
    place = device("a100")
    small = [Kernel("copy", lanes=10**4, reads=((10**4, float("inf")),), written=10**4)] * 100
    found = estimate(place, small, calibration)
    assert found.host == pytest.approx(100 * place.launch_us * 1e-6)
    assert found.host > 0.99 * found.seconds
    # A large one at the end begins when it is issued, and is the device's.
    ended = estimate(place, [*small, BIG_COPY], calibration)
    assert ended.host == pytest.approx(101 * place.launch_us * 1e-6)
    assert ended.memory == pytest.approx(estimate(place, [BIG_COPY], calibration).memory, rel=1e-6)
    counted = estimate_counted(place, small[:1], [100], calibration)
    assert (counted.host, counted.memory) == (counted.seconds, 0.0)


def test_products_of_float32_run_on_matrix_units_where_these_take_them_and_on_lanes_elsewhere():
    for group in ("conv_full", "conv_full_3x3", "conv_full_pointwise"):
        convolution = full(group, "tf32")
        assert demands_on(device("v100"), [convolution]).groups == (group,)
        assert demands_on(device("a100"), [convolution]).groups == ("conv_tf32",)
    rounded = demands_on(device("rtx4090"), [full("gemm_full", "tf32")])
    assert rounded.groups == ("gemm_tf32",)
    assert rounded.exponents[0] == product_exponent(device("rtx4090"))
    assert demands_on(device("a100"), [full("gemm_full")]).groups == ("gemm_full",), "PyTorch rounds no plain product"


def test_units_of_tf32_make_the_padding_of_a_grouped_convolution_and_lanes_do_not():
    grouped = replace(full("conv_full_3x3", "tf32"), padded=16 * 10**12)
    for name, times in (("v100", 1), ("a100", 16)):
        plain, padded = demands_on(device(name), [replace(grouped, padded=0), grouped]).matrix
        assert padded == pytest.approx(times * plain)


def test_doubled_lanes_hold_less_of_their_peak(calibration):
    assert [device(name).has_doubled_lanes for name in ("v100", "t4", "p100", "a100")] == [False] * 4
    assert [device(name).has_doubled_lanes for name in ("rtx3090", "rtx4090", "h100", "jetson-orin")] == [True] * 4
    pascal = device("rtx3090").model_copy(update={"compute_capability": 6.1})
    assert not pascal.has_doubled_lanes, "128 lanes of before Ampere do not share"
    for name, unit, share in (("v100", "fp32", 1.0), ("rtx3090", "fp32", 0.6), ("rtx3090", "tf32", 1.0)):
        place = device(name)
        expected = 2e12 / (place.peak_flops(unit) * place.sustained * 0.5 * share)
        assert estimate(place, [full("gemm_full", unit)], calibration).seconds == pytest.approx(expected, rel=0.01)


def test_doubled_lanes_share_whatever_product_they_make():
    place = device("rtx3090")
    in_full, in_half = (demands_on(place, [full("attention_efficient", unit)]).matrix[0] for unit in ("fp32", "fp16"))
    assert in_full / in_half == pytest.approx(place.peak_flops("fp16") / place.peak_flops("fp32") / 0.6)


def test_products_of_odd_lengths_are_slow_on_matrix_units_before_ampere():
    assert [device(name).has_early_matrix_units for name in ("v100", "t4")] == [True] * 2
    assert [device(name).has_early_matrix_units for name in ("p100", "a100", "rtx3090", "h100")] == [False] * 4
    odd = [replace(BIG_PRODUCT, group=group) for group in ("gemm", "gemm_unaligned", "bmm", "bmm_unaligned")]
    for name, times in (("v100", 3), ("t4", 3), ("a100", 1), ("p100", 1)):
        even, uneven, batched, batched_uneven = demands_on(device(name), odd).matrix
        assert uneven / even == pytest.approx(times)
        assert batched_uneven / batched == pytest.approx(times)


def test_matrix_units_before_ampere_reach_less_in_half_precision_and_lanes_do_not():
    early, late = (device("rtx4090").model_copy(update={"compute_capability": since}) for since in (7.0, 8.0))
    for unit, ratio in (("fp16", 1 / 0.85), ("tf32", 1.0)):
        product = replace(BIG_PRODUCT, unit=unit)
        slow, fast = (demands_on(place, [product]).matrix[0] for place in (early, late))
        assert slow == pytest.approx(ratio * fast)


def test_matrix_units_that_hold_more_products_are_fed_less_of_them():
    """Where a card holds less of its peak by itself, as for want of power, it is fed what it holds."""

    def share(name, unit="fp16", **changed):
        place = device(name).model_copy(update=changed)
        product = replace(BIG_PRODUCT, unit=unit, blocks=place.multiprocessors)
        return 2 * product.macs / place.peak_flops(unit) / demands_on(place, [product]).matrix[0]

    assert device(shipped_calibration().device).products_per_cycle == pytest.approx(FIT_PRODUCTS, rel=0.01)
    assert share("rtx3090") == pytest.approx(1.08)
    assert share("rtx4090") == pytest.approx(1.08)
    assert share("a100") == pytest.approx(1.1 / 2, rel=0.01)
    assert share("a100", "bf16") == share("a100")
    assert share("a100", "tf32") == pytest.approx(0.84)
    assert share("a100", sustained=0.5) == pytest.approx(0.5)
    assert share("rtx-pro-6000-maxq") == pytest.approx(0.53)
    assert share("rtx-pro-6000", sustained=1.0) == pytest.approx(1.1 / 2**0.5, rel=0.01)
    assert share("h100") == pytest.approx(1.1 / 2), "as the densest of which times are known"
    assert share("p100") == pytest.approx(0.9)


def test_the_time_of_products_of_float32_is_told_apart(calibration):
    for name, product in (
        ("v100", full("gemm_full")),
        ("a100", full("conv_full", "tf32")),
        ("a100", full("bmm_full")),
        ("t4", full("attention_efficient")),
    ):
        alone = estimate(device(name), [product], calibration).seconds
        assert estimate(device(name), [product, BIG_COPY], calibration).full == pytest.approx(alone, rel=0.01)
        counted = estimate_counted(device(name), [product, BIG_COPY], [3, 1], calibration)
        assert counted.full == pytest.approx(3 * alone, rel=0.01)
    assert estimate(device("v100"), [BIG_PRODUCT], calibration).full == 0.0


def test_a_lane_kernel_in_float32_is_no_product_and_a_pointwise_convolution_is_one(calibration):
    softmax = Kernel("softmax", unit="fp32", lanes=10**9, reads=((10**9, float("inf")),), written=10**9)
    assert estimate(device("v100"), [softmax], calibration).full == 0.0
    pointwise, other = demands_on(device("v100"), [full("conv_full_pointwise"), full("conv_full")]).exponents
    assert (pointwise, other) == (1.2, 2.0)


def test_only_a_large_cache_hides_what_products_write():
    assert product_exponent(device("rtx3090")) == product_exponent(device("t4")) == 1.2
    assert product_exponent(device("rtx4090")) > 2.0
    assert product_exponent(device("rtx5090")) == 1.2, "as its table has it, in spite of its cache"


def test_the_last_round_of_tiles_is_as_long_as_a_full_one(calibration):
    place = device("rtx3090")
    full = replace(BIG_PRODUCT, blocks=place.multiprocessors)
    one_more = replace(BIG_PRODUCT, blocks=place.multiprocessors + 1)
    ratio = demands_on(place, [one_more]).matrix[0] / demands_on(place, [full]).matrix[0]
    assert ratio == pytest.approx(2 * place.multiprocessors / (place.multiprocessors + 1))
