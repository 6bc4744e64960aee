"""One trace for all batch sizes: exact where it is claimed, retraced where it is not."""

from dataclasses import replace
from functools import cache

import pytest

from favor.simulate.batches import Batches
from favor.simulate.kernels import kernels_of
from favor.simulate.networks import Network, network


@pytest.mark.parametrize("phase", ["inference", "training"])
@pytest.mark.parametrize("name", ["vit_xs4", "resnet18", "swin_ti"])
def test_the_lines_give_the_very_trace_at_other_batch_sizes(name, phase):
    if name == "swin_ti" and phase == "training":
        pytest.skip("as slow as the others together, and the lines are the same code")
    subject = network(name, phase, "amp")
    batches = subject.batches()
    assert batches.are_lines
    for batch_size in (33,) if name == "swin_ti" else (2, 33):
        made, traced = batches.at(batch_size), batches.trace_at(batch_size)
        assert made.ops == traced.ops
        assert made.storages == traced.storages
        assert batches.peak_bytes(batch_size) == traced.peak_bytes
        assert kernels_of(batches.working_ops(batch_size)) == kernels_of(traced.ops)
    assert batches.at(2).ops != batches.at(33).ops


def test_the_operations_of_a_fourier_transform_are_on_a_line_but_for_rounding():
    batches = network("vix_fnet", "inference", "amp").batches()
    assert batches.are_lines
    made, traced = batches.at(33), batches.trace_at(33)
    assert made.storages == traced.storages
    transforms = [
        (a.work.fft_flops, b.work.fft_flops) for a, b in zip(made.ops, traced.ops, strict=True) if b.work.fft_flops
    ]
    assert len(transforms) >= 4
    assert all(abs(ours - exact) <= 33 for ours, exact in transforms)
    assert all(exact > 1e6 for _, exact in transforms)


@pytest.fixture(scope="module")
def switch() -> Network:
    return network("switch_xs4", "inference", "amp")


def test_a_network_on_lines_at_every_eighth_batch_is_traced_anew_at_the_others(switch):
    asked = []

    def trace_at(batch_size):
        asked.append(batch_size)
        return switch.batches().trace_at(batch_size)

    batches = Batches(trace_at)
    assert not batches.are_lines
    for batch_size, is_traced in ((24, False), (11, True)):
        anew = switch.batches().trace_at(batch_size)
        assert batches.at(batch_size).ops == anew.ops
        assert batches.peak_bytes(batch_size) == anew.peak_bytes
        assert kernels_of(batches.working_ops(batch_size)) == kernels_of(anew.ops)
        assert (batch_size in asked) == is_traced
    assert batches.largest_batch(batches.peak_bytes(1024)) == 1024


def test_a_network_on_no_lines_is_traced_at_every_batch(switch):
    at_once = cache(switch.batches().trace_at)

    def odd(batch_size):
        """The trace with an operator more at every fifth batch size, so that no line holds."""
        found = at_once(batch_size)
        return replace(found, ops=found.ops + found.ops[-1:]) if batch_size % 5 == 0 else found

    batches = Batches(odd)
    assert not batches.are_lines
    assert len(batches.at(40).ops) == len(at_once(40).ops) + 1
    memory = batches.peak_bytes(16)
    largest = batches.largest_batch(memory)
    assert largest >= 15
    assert batches.peak_bytes(largest) <= memory


def test_the_largest_batch_fits_and_one_more_image_does_not(small_vit):
    batches = small_vit.batches()
    for memory in (60e6, 500e6, 80e9):
        largest = batches.largest_batch(memory)
        assert batches.peak_bytes(largest) <= memory < batches.peak_bytes(largest + 1)
    assert batches.largest_batch(1e6) == 0
