"""Simulated memory against what the allocator says of the same network on a CPU in float32."""

import pytest
import torch

from favor.measure.memory import live_tensor_peak
from favor.measure.workload import Inference, Precision, Training, build
from favor.simulate.devices import device
from favor.simulate.memory import Footprint, usable_memory
from favor.simulate.networks import network
from favor.simulate.simulation import Passes
from favor.zoo.fuse import inference_form

CPU = torch.device("cpu")
FLOAT32 = Precision.named("fp32", "cpu")


def footprint(name: str, phase: str, img_size: int) -> Footprint:
    return Passes(network(name, phase, "fp32", img_size=img_size), "lamb").footprint


# On small images the scratch that convolutions take on a CPU is more than 2 % of what ResNet takes.
@pytest.mark.parametrize(
    ("name", "batch_size", "img_size"),
    [("vit_ti16", 4, 64), ("resnet18", 4, 224), ("gfnet_ti16", 2, 224), ("fastvit_s12", 2, 64)],
)
def test_inference_memory_is_that_of_the_allocator(name, batch_size, img_size):
    model, _ = inference_form(build(name, "inference", img_size, 1000))
    call = Inference(model, img_size, CPU, FLOAT32, compiled=False).at(batch_size)
    exact = live_tensor_peak(call.run, call.held)
    simulated = footprint(name, "inference", img_size)
    assert simulated.peak(batch_size) == pytest.approx(exact, rel=0.02)
    assert simulated.peak(4 * batch_size) > 1.02 * exact, "the batch must matter, or the equality says little"


@pytest.mark.parametrize(("name", "batch_size", "img_size"), [("vit_ti16", 16, 64), ("resnet18", 4, 224)])
def test_training_memory_is_that_of_the_allocator(name, batch_size, img_size):
    call = Training(build(name, "training", img_size, 1000), img_size, CPU, FLOAT32, False, "lamb").at(batch_size)
    exact = live_tensor_peak(call.run, call.held)
    simulated = footprint(name, "training", img_size)
    assert simulated.peak(batch_size) == pytest.approx(exact, rel=0.02)


def test_a_training_step_of_2048_images_does_not_fit_an_a100_where_64_do():
    step = Passes(network("vit_s16", "training", "amp"), "lamb").footprint
    assert step.peak(64) < usable_memory(device("a100")) < step.peak(2048)
    largest = step.largest_batch(device("a100"))
    assert 64 < largest < 2048
    assert largest < step.largest_batch(device("a100-80gb"))


def test_the_update_alone_can_be_the_peak_of_a_small_batch(small_vit):
    batches = small_vit.batches()
    small = Footprint(batches, image=100, state=10, update=10**12)
    assert small.peak(1) == 10**12 + 100
    assert small.largest_batch(device("a100")) == 0
