"""XCiT's attention is its explicit map between the channels of a head."""

import torch

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.registry import create_miniature


def test_its_attention_is_its_explicit_map_between_channels() -> None:
    attention = with_order_one_weights(create_miniature("xcit_s12_p16").blocks[0].attn).double().eval()
    dim = attention.proj.in_features
    heads = attention.num_heads
    x = images(2, 10, dim, dtype=torch.float64)
    with torch.no_grad():
        q, k, v = (x @ attention.qkv.weight.T + attention.qkv.bias).split(dim, dim=-1)
        mixed = []
        for head in range(heads):
            part = slice(head * dim // heads, (head + 1) * dim // heads)
            unit_q, unit_k = (t[..., part] / t[..., part].norm(dim=1, keepdim=True) for t in (q, k))
            channel_map = (unit_q.transpose(1, 2) @ unit_k * attention.temperature[head]).softmax(dim=-1)
            assert channel_map.shape == (2, dim // heads, dim // heads)
            mixed.append(v[..., part] @ channel_map.transpose(1, 2))
        expected = torch.cat(mixed, dim=-1) @ attention.proj.weight.T + attention.proj.bias
        assert largest_difference(attention(x), expected) < 1e-12
        with mutated(attention):
            assert largest_difference(attention(x), expected) > 1e-3


def test_its_weights_load_at_another_image_size_as_they_are() -> None:
    source, target = create_miniature("xcit_s12_p16"), create_miniature("xcit_s12_p16", img_size=96)
    assert favor.load_weights(target, source.state_dict()).resampled == ()


def test_parameters_are_those_of_the_benchmark() -> None:
    expected = {"xcit_ti12_p16": 6_716_272, "xcit_s12_p16": 26_253_304}
    for name, count in expected.items():
        with torch.device("meta"):
            model = favor.create_model(name)
        assert sum(p.numel() for p in model.parameters()) == count
    assert favor.card("XCiT-S-12/16").name == favor.card("xcit_small_12_p16").name == "xcit_s12_p16"
