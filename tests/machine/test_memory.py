"""Exact memory: closed forms of small networks, and the largest batch that fits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from favor.machine.best_batch import DoesNotFitError
from favor.machine.memory import batch_memory, bytes_of, is_out_of_memory, live_tensor_peak, process_peak
from favor.trace.workload import Inference, Precision, Training

CPU = torch.device("cpu")
FP32 = Precision.named("fp32", "cpu")


def two_layers() -> nn.Module:
    """64 -> 512 -> 8 on an image of 8 x 8 pixels' first channel."""
    return nn.Sequential(FirstChannel(), nn.Linear(64, 512, bias=False), nn.ReLU(), nn.Linear(512, 8, bias=False))


class FirstChannel(nn.Module):
    def forward(self, images):
        return images[:, 0].flatten(1)


def inference_peak(batch: int, model: nn.Module) -> int:
    call = Inference(model, 8, CPU, FP32, compiled=False).at(batch)
    call.run()
    return live_tensor_peak(call.run, call.held)


@pytest.mark.parametrize("batch", [1, 16])
def test_the_peak_of_two_layers_is_their_closed_form(batch):
    weights = 4 * (64 * 512 + 512 * 8)
    images = 4 * batch * 3 * 64
    channel, hidden = 4 * batch * 64, 4 * batch * 512
    # A slice of one image is contiguous already and is not copied.
    copy = channel if batch > 1 else 0
    # The input of ReLU and its output are there at once; the copied channel is gone by then.
    assert inference_peak(batch, two_layers()) == weights + images + max(2 * hidden, copy + hidden)


def test_a_wider_layer_changes_the_closed_form_so_the_test_can_fail():
    wider = nn.Sequential(FirstChannel(), nn.Linear(64, 513, bias=False), nn.ReLU(), nn.Linear(513, 8, bias=False))
    grown = 4 * (64 + 8) + 2 * 4 * 16
    assert inference_peak(16, wider) - inference_peak(16, two_layers()) == grown


def test_the_figure_is_the_same_on_every_run():
    assert len({inference_peak(4, two_layers()) for _ in range(3)}) == 1


def test_a_training_step_of_one_image_has_its_peak_in_the_update_and_it_is_its_closed_form():
    model = nn.Sequential(FirstChannel(), nn.Linear(64, 512, bias=False), nn.Linear(512, 8, bias=False))
    call = Training(model, 8, CPU, FP32, compiled=False, optimizer="sgd").at(1)
    weights, largest_weight, images = 4 * (64 * 512 + 512 * 8), 4 * 64 * 512, 4 * 3 * 64
    decay = 8 + 4  # the rate of weight decay as a double, and as the float that it is multiplied as
    # Weights, momentum, gradients, and one gradient at a time with the weight decay added to it.
    assert live_tensor_peak(call.run, call.held) == 3 * weights + largest_weight + decay + images


def test_the_optimizers_state_is_held_between_steps():
    call = Training(two_layers(), 8, CPU, FP32, compiled=False, optimizer="adam").at(1)
    weights, step_counters, images = 4 * (64 * 512 + 512 * 8), 2 * 4, 4 * 3 * 64
    assert bytes_of(call.held) == 3 * weights + step_counters + images


def test_no_gradient_is_left_between_steps():
    training = Training(two_layers(), 8, CPU, FP32, compiled=False, optimizer="sgd")
    call = training.at(2)
    call.run()
    assert all(parameter.grad is None for parameter in call.held if isinstance(parameter, nn.Parameter))


def test_storages_that_are_shared_count_once():
    one = torch.empty(10, 10)
    assert bytes_of([one, one.t(), one[3]]) == 400


@given(
    always=st.integers(0, 10**6),
    moments=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6)), min_size=1, max_size=4),
    room=st.integers(1, 10**9),
)
def test_the_sure_batch_fits_whatever_lines_the_moments_of_a_pass_have(always, moments, room):
    def peak(batch: int) -> int:
        return always + max(fixed + slope * batch for fixed, slope in moments)

    found = batch_memory(peak, always)
    sure, largest = found.sure_batch(always + room), found.largest_batch(always + room)
    assert sure is not None
    assert largest is not None
    assert sure == 0 or peak(sure) <= always + room
    # between measurements the estimate is on the safe side; beyond them the peak can only be steeper than the last line
    if largest > found.measured_to:
        assert peak(largest + 1) >= always + room


def test_a_steeper_line_that_shows_at_larger_batches_only_is_found():
    found = batch_memory(lambda batch: 1000 + max(800 + 10 * batch, 50 * batch), always=1000)
    assert found.verified
    assert (found.fixed, found.per_image) == (1000, 50)
    assert found.largest_batch(10_000) == 180
    assert found.largest_batch(2000) == 17  # between measurements on the safe side: 20 would fit


def test_a_steeper_line_that_there_was_no_time_to_see_cannot_make_the_sure_batch_too_large():
    def peak(batch: int) -> int:
        return 1000 + max(800 + 10 * batch, 200 * batch)

    found = batch_memory(peak, always=1000, affordable=lambda batch: batch <= 4)
    assert found.verified
    assert peak(found.largest_batch(21_000)) > 21_000  # what the line alone would promise
    assert peak(found.sure_batch(21_000)) <= 21_000
    assert found.sure_batch(21_000) == 95


def test_peaks_on_no_line_are_not_verified():
    found = batch_memory(lambda batch: batch**2, always=0)
    assert not found.verified


def test_a_peak_that_does_not_grow_tells_no_largest_batch():
    found = batch_memory(lambda batch: 1000, always=900)
    assert found.largest_batch(10**9) is None


def test_without_time_for_a_third_measurement_the_line_is_not_verified():
    tried = []

    def peak(batch: int) -> int:
        tried.append(batch)
        return 100 * batch

    assert not batch_memory(peak, 0, affordable=lambda batch: False).verified
    assert tried == [1, 2]


def test_growing_ends_at_the_first_batch_that_does_not_fit():
    def peak(batch: int) -> int:
        if batch > 20:
            raise DoesNotFitError
        return 10_000 + 100 * batch

    found = batch_memory(peak, always=100)
    assert (found.measured_to, found.too_large, found.verified) == (16, 32, True)
    assert found.largest_batch(15_000) == 50  # what a larger device would hold


def test_a_batch_that_the_line_leads_beyond_the_room_with_is_not_tried():
    tried = []

    def peak(batch: int) -> int:
        tried.append(batch)
        return 10_000 + 100 * batch

    batch_memory(peak, always=100, room=11_000)
    assert tried == [1, 2, 4, 8]


def test_the_smallest_batch_that_does_not_fit_is_the_callers_error():
    def peak(batch: int) -> int:
        raise DoesNotFitError

    with pytest.raises(DoesNotFitError):
        batch_memory(peak, always=0)


def test_a_single_measurement_tells_no_line():
    def peak(batch: int) -> int:
        if batch > 2:
            raise DoesNotFitError
        return 1000

    found = batch_memory(peak, always=900, smallest=2)
    assert (found.peaks, found.too_large) == (((2, 1000),), 4)
    assert (found.largest_batch(10**6), found.largest_batch(999)) == (None, 0)


def test_pytorchs_ways_to_say_that_memory_is_exhausted_are_known():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_the_process_has_used_more_than_a_megabyte_and_less_than_the_machine_has():
    import psutil

    assert 2**20 < process_peak() < psutil.virtual_memory().total
