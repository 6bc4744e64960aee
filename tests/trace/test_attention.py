"""Fused and plain attention: the same function and work, another memory."""

import pytest
import torch

from favor.errors import RequestError
from favor.simulation.networks import network
from favor.simulation.simulation import Passes
from favor.trace.attention import attention_implementation
from favor.trace.counts import count
from favor.zoo.registry import create_model


def training_memory(name: str, attention: str, batch_size: int = 64) -> int:
    traced = network(name, "training", "amp", num_classes=10, attention=attention)
    return Passes(traced, "adam").footprint.peak(batch_size)


def test_plain_attention_gives_the_outputs_of_fused_attention():
    torch.manual_seed(0)
    model, images = create_model("vit_xs4", num_classes=10).eval(), torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        fused = model(images)
        with attention_implementation("plain"):
            plain = model(images)
    assert torch.allclose(fused, plain, atol=1e-5)


def test_both_do_the_same_products():
    fused, plain = (count("vit_xs4", attention=attention) for attention in ("fused", "plain"))
    assert fused.macs_matmul == plain.macs_matmul


def test_plain_attention_keeps_its_weights_for_the_backward_pass():
    # 2 x 2 bytes of scores and weights per head, layer and pair of tokens at the least
    tokens, heads, depth, batch_size = 65, 3, 4, 64
    more = training_memory("vit_xs4", "plain") - training_memory("vit_xs4", "fused")
    assert more > 4 * tokens**2 * heads * depth * batch_size


def test_the_x_formers_memory_order_is_that_of_plain_attention():
    names = ("vix_vit", "vix_vip", "vix_vin", "vix_vil")
    plain = {name: training_memory(name, "plain") for name in names}
    assert sorted(plain, key=lambda name: -plain[name]) == list(names), "as the paper prints it: 14.1, 5.0, 4.8, 2.2 GB"
    assert 5 < plain["vix_vit"] / plain["vix_vil"] < 8, "6.4 in the paper"


def test_with_fused_attention_the_headline_of_the_x_formers_does_not_hold():
    assert training_memory("vix_vit", "fused") < training_memory("vix_vip", "fused")


def test_an_unknown_implementation_is_refused():
    with pytest.raises(RequestError, match="unknown attention 'flash'.*fused, plain"):
        attention_implementation("flash")
