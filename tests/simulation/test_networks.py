"""The optimizer's update, as a GPU runs it."""

from functools import partial

import pytest

from favor.simulation.kernels import kernels_of
from favor.simulation.networks import Network, network
from favor.trace.optimizer import steps_on_device, trace_update
from favor.trace.workload import benchmark_optimizer


@pytest.fixture(scope="module")
def training_vit() -> Network:
    return network("vit_xs4", "training", "amp", num_classes=10)


def weights_of(subject: Network) -> list[int]:
    return [weight.numel() for weight in subject.model.parameters() if weight.requires_grad]


@pytest.mark.parametrize(("optimizer", "passes"), [("adamw", 8), ("adam", 8), ("sgd", 4)])
def test_pytorchs_optimizers_take_all_tensors_at_once(training_vit, optimizer, passes):
    update = training_vit.update(optimizer)
    kernels = kernels_of(steps_on_device(update))
    assert len(kernels) == passes, "one for each line of the update, and none for the counters on the CPU"
    assert {kernel.lanes for kernel in kernels} == {sum(weights_of(training_vit))}


def test_lamb_goes_from_tensor_to_tensor(training_vit):
    kernels = kernels_of(steps_on_device(training_vit.update("lamb")))
    assert len(kernels) > 20 * len(weights_of(training_vit))


def test_at_once_and_one_by_one_move_the_same_bytes(training_vit):
    def moved(*, many_at_once: bool) -> int:
        update = trace_update(training_vit.model, partial(benchmark_optimizer, "sgd"), "sgd", many_at_once=many_at_once)
        return sum(kernel.bytes_moved for kernel in kernels_of(steps_on_device(update)))

    assert moved(many_at_once=True) == moved(many_at_once=False)


def test_at_once_needs_a_copy_of_all_weights(training_vit):
    peak = training_vit.update("adamw").peak_bytes
    assert peak == pytest.approx(4 * 5 * sum(weights_of(training_vit)), rel=0.001), (
        "weights, gradients, two moments, and the root of the second"
    )
