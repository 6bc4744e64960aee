"""One trace for all batch sizes: exact where it is claimed, retraced where it is not."""

import pytest

from favor.simulate.batches import Batches
from favor.simulate.networks import network


@pytest.mark.parametrize("phase", ["inference", "training"])
@pytest.mark.parametrize("name", ["vit_ti16", "resnet18", "swin_ti"])
def test_the_lines_give_the_very_trace_at_other_batch_sizes(name, phase):
    if name == "swin_ti" and phase == "training":
        pytest.skip("as slow as the others together, and the lines are the same code")
    subject = network(name, phase, "amp", img_size=224 if name == "swin_ti" else 64)
    batches = subject.batches()
    assert batches.are_lines
    for batch_size in (2, 33):
        made, traced = batches.at(batch_size), batches.trace_at(batch_size)
        assert made.ops == traced.ops
        assert made.storages == traced.storages
        assert batches.peak_bytes(batch_size) == traced.peak_bytes
    assert batches.at(2).ops != batches.at(33).ops


def test_a_network_whose_work_is_no_line_is_traced_anew():
    subject = network("switch_8_ti16", "inference", "amp", img_size=64)
    asked = []

    def trace_at(batch_size):
        asked.append(batch_size)
        return subject.batches().trace_at(batch_size)

    batches = Batches(trace_at)
    assert not batches.are_lines
    assert batches.at(11).ops == subject.batches().trace_at(11).ops
    assert 11 in asked
    memory = batches.peak_bytes(40)
    largest = batches.largest_batch(memory)
    assert largest >= 39
    assert batches.peak_bytes(largest) <= memory


def test_the_largest_batch_fits_and_one_more_image_does_not(small_vit):
    batches = small_vit.batches()
    for memory in (60e6, 500e6, 80e9):
        largest = batches.largest_batch(memory)
        assert batches.peak_bytes(largest) <= memory < batches.peak_bytes(largest + 1)
    assert batches.largest_batch(1e6) == 0
