"""Wave-ViT: its wavelet transform loses nothing, and its attention is softmax attention over the filtered bands."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.mixing.sparse.wavevit import WaveletAttention, haar, inverse_haar
from favor.zoo.registry import create_miniature

sizes = st.integers(1, 5)


@settings(max_examples=30, deadline=None)
@given(batch=st.integers(1, 3), height=sizes, width=sizes, channels=sizes, seed=st.integers(0, 99))
def test_the_haar_transform_is_orthonormal_and_has_its_inverse(
    batch: int, height: int, width: int, channels: int, seed: int
) -> None:
    x = images(batch, 2 * height, 2 * width, channels, seed=seed, dtype=torch.float64)
    bands = haar(x)
    assert bands.shape == (batch, height, width, 4 * channels)
    assert torch.allclose(bands.square().sum(), x.square().sum())
    assert largest_difference(inverse_haar(bands), x) < 1e-12


def test_the_four_bands_are_those_of_the_haar_filters() -> None:
    x = images(2, 6, 4, 3, dtype=torch.float64)
    low, high = torch.tensor([1.0, 1.0]) / 2**0.5, torch.tensor([1.0, -1.0]) / 2**0.5
    filters = [torch.outer(rows, columns) for columns in (low, high) for rows in (low, high)]
    bands = [
        F.conv2d(x.permute(0, 3, 1, 2), kernel.double().expand(3, 1, 2, 2), stride=2, groups=3) for kernel in filters
    ]
    expected = torch.cat(bands, dim=1).permute(0, 2, 3, 1)
    assert largest_difference(haar(x), expected) < 1e-6
    assert largest_difference(haar(x.transpose(1, 2)).transpose(1, 2), expected) > 1e-3


def explicit(attention: WaveletAttention, x: Tensor, bands: Tensor) -> Tensor:
    """Softmax attention, matrix by matrix, over bands that are given."""
    keys, values = attention.kv(attention.shrink(bands).flatten(1, 2)).chunk(2, dim=-1)
    queries = attention.q(x.flatten(1, 2))
    width = x.shape[-1] // attention.heads
    heads = []
    for head in range(attention.heads):
        part = slice(head * width, (head + 1) * width)
        logits = queries[..., part] @ keys[..., part].transpose(1, 2) / width**0.5
        heads.append(logits.softmax(dim=-1) @ values[..., part])
    return attention.proj(torch.cat([*heads, inverse_haar(bands).flatten(1, 2)], dim=-1)).view_as(x)


@pytest.mark.parametrize("reduction", [1, 2])
def test_wavelet_attention_is_softmax_attention_over_the_filtered_bands(reduction: int) -> None:
    attention = with_order_one_weights(WaveletAttention(24, 3, reduction)).double().eval()
    x = images(2, 8, 12, 24, dtype=torch.float64)
    expected = explicit(attention, x, attention.filter(haar(attention.reduce(x))))
    assert largest_difference(attention(x), expected) < 1e-12
    with mutated(attention.filter):
        assert largest_difference(attention(x), expected) > 1e-3


def test_without_filter_the_details_come_back_unchanged() -> None:
    attention = with_order_one_weights(WaveletAttention(24, 3, 1)).double().eval()
    attention.filter = nn.Identity()
    with torch.no_grad():
        attention.kv[1].weight.zero_()  # no values: what is left has passed the transform and its inverse
        attention.kv[1].bias.zero_()
    x = images(2, 4, 4, 24, dtype=torch.float64)
    expected = F.linear(attention.reduce(x), attention.proj.weight[:, 24:], attention.proj.bias)
    assert largest_difference(attention(x), expected) < 1e-12
    with mutated(attention.reduce):
        assert largest_difference(attention(x), expected) > 1e-3


def test_keys_are_as_few_in_the_first_two_stages_as_at_the_end() -> None:
    model = create_miniature("wavevit_s", img_size=224).eval()
    keys = []
    for part in model.modules():
        if isinstance(part, WaveletAttention):
            part.kv.register_forward_hook(lambda module, inputs, output: keys.append(output.shape[1:3].numel()))
    model(images(1, 3, 224, 224))
    assert keys == [49, 49]


def test_a_size_that_the_wavelets_cannot_halve_is_refused() -> None:
    with pytest.raises(RequestError, match="multiple of 32"):
        favor.create_model("wavevit_s", img_size=240)


def test_has_the_parameters_of_the_benchmark() -> None:
    with torch.device("meta"):
        model = favor.create_model("wavevit_s")
    # at 1000 classes and 224 px: reference/models.csv; 22.7 M in the paper, with the second head of its token labelling
    assert sum(parameter.numel() for parameter in model.parameters()) == 22_241_176
