"""One trace for all batch sizes: exact where it is claimed, retraced where it is not."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from favor.errors import WorkError
from favor.simulation.batch_scaling import MARK, Batches
from favor.simulation.kernels import kernels_of
from favor.simulation.networks import Network, network
from favor.trace.fake_device import trace_on
from favor.trace.operator_trace import Trace


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
        assert made.steps == traced.steps
        assert made.storages == traced.storages
        assert batches.peak_bytes(batch_size) == traced.peak_bytes
        assert kernels_of(batches.working_steps(batch_size)) == kernels_of(traced.steps)
    assert batches.at(2).ops != batches.at(33).ops


@pytest.mark.parametrize("name", ["linformer_xs4", "vit_xs4"])
def test_one_image_is_as_pytorch_has_it_which_saves_copies_that_it_makes_of_many(name):
    batches = network(name, "inference", "amp").batches()
    anew = batches.trace_at(1)
    assert batches.are_lines
    assert kernels_of(batches.working_steps(1)) == kernels_of(anew.steps)
    assert batches.peak_bytes(1) == anew.peak_bytes
    copies = [sum(op.name == "aten.clone.default" for op in batches.at(many).ops) for many in (1, 2)]
    assert copies[0] < copies[1] if name == "linformer_xs4" else copies == [0, 0]


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
        assert batches.at(batch_size).steps == anew.steps
        assert batches.peak_bytes(batch_size) == anew.peak_bytes
        assert kernels_of(batches.working_steps(batch_size)) == kernels_of(anew.steps)
        assert (batch_size in asked) == is_traced
    assert batches.largest_batch(batches.peak_bytes(1024)) == 1024


@pytest.mark.parametrize("experts", [2, 4, 8, 64])
def test_a_share_of_the_batch_that_is_rounded_is_on_no_line(small_vit, experts):
    found = small_vit.batches().trace_at(3)

    def shared(batch_size):
        """The trace of 65 tokens an image that are dealt out evenly, in the place of its first operator's reading."""
        (op, used), *others = found.steps
        return replace(found, steps=((replace(op, bytes_read=-(-65 * batch_size // experts)), used), *others))

    assert not Batches(shared).are_lines
    for batch_size in (72, MARK):
        assert Batches(shared).at(batch_size).steps == shared(batch_size).steps


class DealtOut(nn.Module):
    """129 rows an image for 128 experts: what each gets is rounded up, and has whole bytes and operations an image."""

    def forward(self, images: Tensor) -> Tensor:
        rows = images.flatten().unflatten(0, (-1, 128))
        return rows[: -(-129 * len(images) // 128)] * 2


def test_a_share_for_each_of_many_experts_is_on_no_line():
    batches = Batches(lambda batch_size: trace_on("cuda", DealtOut(), (batch_size, 3, 16, 16)))
    assert not batches.are_lines
    for batch_size in (33, 72):
        assert batches.at(batch_size).steps == batches.trace_at(batch_size).steps


class Filtered(nn.Module):
    """Images times the transform of a kernel, which is made anew in every pass."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(3, 32, 32))

    def forward(self, images: Tensor) -> Tensor:
        return images * torch.fft.fft2(self.kernel).real


def test_a_fourier_transform_of_weights_is_as_much_work_at_every_batch():
    batches = Batches(lambda batch_size: trace_on("cuda", Filtered(), (batch_size, 3, 32, 32)))
    assert batches.are_lines
    assert batches.at(33).steps == batches.trace_at(33).steps
    assert max(op.work.fft_flops for op in batches.at(33).ops) == 5 * 3 * 1024 * 10


def test_images_too_large_for_the_marked_batch_are_traced_at_small_ones():
    batches = network("resnet18", "inference", "fp32", img_size=4096).batches()
    with pytest.raises(WorkError, match="overflow"):
        batches.trace_at(MARK)
    for batch_size in (1, 24):
        anew = batches.trace_at(batch_size)
        assert batches.at(batch_size).steps == anew.steps
        assert batches.peak_bytes(batch_size) == anew.peak_bytes


class OneByOne(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return torch.stack([image.mean(0) for image in images])


class InTurn(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return torch.stack([images[place].mean(0) for place in range(len(images))])


@pytest.mark.parametrize("model", [OneByOne(), InTurn()], ids=["iterator", "index"])
def test_a_network_that_loops_over_its_images_is_traced_at_every_batch(model, monkeypatch):
    monkeypatch.setattr("favor.trace.fake_device.MANY_TENSORS", 1000)  # it would be seconds until the usual limit
    batches = Batches(lambda batch_size: trace_on("cuda", model, (batch_size, 3, 4, 4)))
    assert not batches.are_lines
    assert batches.at(3).steps == batches.trace_at(3).steps


def test_a_network_that_fails_at_every_batch_is_told_to_have_failed_on_a_batch_that_a_user_may_have():
    def broken(batch_size: int) -> Trace:
        raise WorkError(f"failed on {batch_size} images")

    with pytest.raises(WorkError, match="failed on 8 images"):
        Batches(broken).at(5)


def test_a_network_on_no_lines_is_traced_at_every_batch(switch):
    at_once = cache(switch.batches().trace_at)

    def odd(batch_size):
        """The trace with an operator more at every fifth batch size, so that no line holds."""
        found = at_once(batch_size)
        return replace(found, steps=found.steps + found.steps[-1:]) if batch_size % 5 == 0 else found

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


class TwoOfOneForm(nn.Module):
    """At eight images what a table and what the images give are alike, at no other number of them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(64, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :32].reshape(-1, 4).relu().sum() + self.table.relu().sum()


def test_what_is_alike_at_one_batch_size_alone_is_told_apart():
    asked = []

    def at(batch_size):
        asked.append(batch_size)
        if batch_size == MARK:
            raise WorkError("too many images, so that the lines are those of multiples of eight")
        return trace_on("cuda", TwoOfOneForm(), (batch_size, 3, 4, 4))

    relu = [op for op in at(8).ops if op.name == "aten.relu.default"]
    assert relu[0] is relu[1]
    made = Batches(at).at(24)
    assert 24 not in asked
    assert made.steps == at(24).steps
