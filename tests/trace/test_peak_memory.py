"""The peak of a training step, split by what holds the memory."""

import pytest

from favor.simulation.networks import network
from favor.simulation.simulation import Passes
from favor.trace.counts import count
from favor.trace.peak_memory import peak_memory


@pytest.mark.parametrize("batch_size", [1, 64])
@pytest.mark.parametrize("name", ["vit_xs4", "switch_xs4", "tome_xs4"])
def test_the_parts_add_up_to_the_simulated_peak(name, batch_size):
    memory = peak_memory(name, batch_size=batch_size, optimizer="adamw")
    assert memory.peak == Passes(network(name, "training", "amp"), "adamw").footprint.peak(batch_size)


@pytest.mark.parametrize(("optimizer", "states"), [("sgd", 1), ("adamw", 2), ("lamb", 2)])
def test_weights_and_states_are_four_bytes_a_parameter(optimizer, states):
    memory, params = peak_memory("vit_xs4", batch_size=64, optimizer=optimizer), count("vit_xs4").params
    assert memory.parts["weights"] == 4 * params
    assert memory.parts["optimizer"] == states * 4 * params


def test_at_one_image_gradients_and_states_outweigh_activations():
    memory = peak_memory("vit_xs4", batch_size=1)
    assert memory.parts["gradients"] > 0.9 * 4 * count("vit_xs4").params
    assert memory.kept < memory.parts["optimizer"]


def test_activations_grow_with_the_batch_and_weights_do_not():
    small, large = (peak_memory("vit_xs4", batch_size=size) for size in (64, 128))
    assert large.kept == pytest.approx(2 * small.kept, rel=0.01)
    assert large.parts["weights"] == small.parts["weights"]


def test_plain_attention_keeps_a_softmax_that_fused_attention_does_not():
    fused, plain = (peak_memory("vit_xs4", batch_size=64, attention=kind) for kind in ("fused", "plain"))
    assert "kept: softmax" not in fused.parts
    assert plain.parts["kept: softmax"] >= 64 * 4 * 3 * 65**2 * 2, "images, layers, heads, tokens squared, bytes"
