"""HaloNet with a halo over the whole image is full attention; otherwise a block sees itself and its halo."""

import pytest
import torch

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.mixing.sparse.halonet import HaloAttention, HaloBlock


def attention_by_loops(attention: HaloAttention, x: torch.Tensor) -> torch.Tensor:
    """Every query on its own: its block, the halo around it, what is inside of the image, relative logits."""
    B, _, height, width = x.shape
    heads, d, block, stride = attention.heads, attention.head_dim, attention.block, attention.stride
    q = attention.q(x).view(B, heads, d, height, width)
    k, v = attention.kv(x).view(B, 2, heads, d, height, width).unbind(1)
    out = x.new_zeros(B, heads, d, -(-height // stride), -(-width // stride))
    middle = attention.window - 1 - attention.halo
    for i in range(0, height, stride):
        for j in range(0, width, stride):
            top, left = i // block * block - attention.halo, j // block * block - attention.halo
            keys = [
                (r, c)
                for r in range(max(top, 0), min(top + attention.window, height))
                for c in range(max(left, 0), min(left + attention.window, width))
            ]
            rows, columns = torch.tensor(keys).T
            relative = attention.relative_rows[rows - i + middle] + attention.relative_columns[columns - j + middle]
            logits = torch.einsum("bhd,bhdk->bhk", q[..., i, j], k[..., rows, columns] + relative.T)
            weights = (logits * attention.scale).softmax(dim=-1)
            out[..., i // stride, j // stride] = torch.einsum("bhk,bhdk->bhd", weights, v[..., rows, columns])
    return out.flatten(1, 2)


def test_a_halo_over_the_whole_image_without_relative_terms_is_full_attention() -> None:
    attention = with_order_one_weights(HaloAttention(24, 3, block=4, halo=6)).double()
    torch.nn.init.zeros_(attention.relative_rows)
    torch.nn.init.zeros_(attention.relative_columns)
    x = images(2, 24, 6, 6, dtype=torch.float64)
    q = attention.q(x).view(2, 3, 8, 36)
    k, v = attention.kv(x).view(2, 2, 3, 8, 36).unbind(1)
    weights = (q.transpose(-2, -1) @ k * attention.scale).softmax(dim=-1)
    expected = (weights @ v.transpose(-2, -1)).transpose(-2, -1).reshape(2, 24, 6, 6)
    assert largest_difference(attention(x), expected) < 1e-12
    with mutated(attention):
        assert largest_difference(attention(x), expected) > 1e-3


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 9), (3, 12), (1, 1)])
def test_a_block_sees_itself_and_its_halo_inside_of_the_image(height: int, width: int, stride: int) -> None:
    attention = with_order_one_weights(HaloAttention(24, 3, stride, block=4, halo=1)).double()
    x = images(2, 24, height, width, dtype=torch.float64)
    expected = attention_by_loops(attention, x)
    assert attention(x).shape == expected.shape
    assert largest_difference(attention(x), expected) < 1e-12
    with mutated(attention):
        assert largest_difference(attention(x), expected) > 1e-3


def convolved_and_normed(part: torch.nn.Sequential, x: torch.Tensor, stride: int = 1) -> torch.Tensor:
    """A convolution of 1 x 1 and its batch norm in eval, written out."""
    convolution, norm = part
    y = torch.einsum("oi,bihw->bohw", convolution.weight[:, :, 0, 0], x[:, :, ::stride, ::stride])
    return normed(norm, y)


def normed(norm: torch.nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
    mean, variance, weight, bias = (
        values[:, None, None] for values in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    return (x - mean) / (variance + norm.eps).sqrt() * weight + bias


@pytest.mark.parametrize(("in_dim", "stride"), [(12, 1), (10, 1), (12, 2)])
def test_a_block_is_a_bottleneck_with_relu_after_every_norm_and_a_residual(in_dim: int, stride: int) -> None:
    block = with_order_one_weights(HaloBlock(in_dim, 8, 12, heads=2, stride=stride, drop_path=0.0)).double()
    for _ in range(3):
        block(1 + 2 * images(4, in_dim, 9, 5, seed=3, dtype=torch.float64))
    block.eval()
    x = images(2, in_dim, 9, 5, dtype=torch.float64)
    with torch.no_grad():
        y = convolved_and_normed(block.reduce, x).clamp_min(0)
        y = normed(block.attention_norm, attention_by_loops(block.attention, y)).clamp_min(0)
        branch = convolved_and_normed(block.expand, y)
        passed = convolved_and_normed(block.shortcut, x, stride) if (in_dim, stride) != (12, 1) else x
        expected = (passed + branch).clamp_min(0)
        assert largest_difference(block(x), expected) < 1e-12
        with mutated(block.expand):
            assert largest_difference(block(x), expected) > 1e-3


def test_a_pixel_outside_of_the_halo_changes_nothing() -> None:
    attention = with_order_one_weights(HaloAttention(8, 1, block=4, halo=1))
    x = images(1, 8, 8, 8)
    changed = x.clone()
    changed[:, :, :, 5:] += 1.0
    difference = (attention(changed) - attention(x)).abs().amax(dim=(0, 1))
    assert difference[:, :4].max() == 0
    assert difference[:, 4:].min() > 0


def test_a_stride_that_does_not_divide_the_block_is_refused() -> None:
    with pytest.raises(RequestError, match="stride must divide"):
        HaloAttention(24, 3, stride=3, block=4)


@pytest.mark.parametrize("img_size", [224, 384])
def test_the_stages_have_the_grids_of_a_resnet(img_size: int) -> None:
    with torch.device("meta"):
        model = favor.create_model("halonet_h0", img_size=img_size)
        x = model.stem(torch.empty(1, 3, img_size, img_size))
        shapes = []
        for block in model.blocks:
            x = block(x)
            shapes.append(tuple(x.shape[1:]))
    side = img_size // 4
    stages = [(32, side), (64, side // 2), (128, side // 4), (256, side // 8)]
    depths = [3, 3, 7, 3]
    assert shapes == [(dim, s, s) for (dim, s), depth in zip(stages, depths, strict=True) for _ in range(depth)]


@pytest.mark.parametrize(
    ("name", "count", "millions"), [("halonet_h0", 5_496_104, 5.5), ("halonet_h1", 8_094_056, 8.1)]
)
def test_it_has_the_parameters_of_the_paper(name: str, count: int, millions: float) -> None:
    with torch.device("meta"):
        model = favor.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert round(count / 1e6, 1) == millions
