"""From operators to the kernels of a compiled network: what becomes one pass, and what it reads and writes."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from favor.measure.pretend import trace_on
from favor.measure.trace import Trace
from favor.simulate.fusing import fused_kernels_of, wants_channels_last
from favor.simulate.kernels import Kernel, kernels_of

HALF = torch.float16
IMAGES = 4


class Block(nn.Module):
    """What a test wants to be run, between two linear layers, which are calls of a library."""

    def __init__(self, between):
        super().__init__()
        self.before, self.after, self.between = nn.Linear(64, 64), nn.Linear(64, 64), between

    def forward(self, images: Tensor) -> Tensor:
        return self.after(self.between(self.before(images)))


def trace(model: nn.Module, shape: tuple[int, ...] = (IMAGES, 3, 8, 64), *, channels_last: bool = False) -> Trace:
    return trace_on("cuda", model.to(HALF), shape, dtype=HALF, channels_last=channels_last)


def between(what, shape=(IMAGES, 3, 8, 64)) -> list[Kernel]:
    """The kernels between the products."""
    first, *rest, last = fused_kernels_of(trace(Block(what), shape).steps)
    assert (first.group, last.group) == ("gemm", "gemm")
    return rest


SIZE = IMAGES * 3 * 8 * 64 * 2


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(lambda x: F.relu(x), id="one operator"),
        pytest.param(lambda x: F.gelu(x + 1) * 2, id="a chain"),
        pytest.param(lambda x: x + F.relu(x) * torch.sigmoid(x), id="branches that meet again"),
        pytest.param(lambda x: F.relu(x).mul_(2).add_(x), id="operators in place"),
        pytest.param(lambda x: F.layer_norm(x, (64,)) + x, id="a norm over channels"),
        pytest.param(lambda x: torch.softmax(x.float(), -1).half(), id="a softmax and its casts"),
        pytest.param(lambda x: torch.cat((x[..., :16] + 1, x[..., 16:] * 2), -1), id="parts put together again"),
    ],
)
def test_what_lies_between_two_products_is_one_pass_that_reads_and_writes_once(what):
    (kernel,) = between(what)
    assert [size for size, _ in kernel.reads] == [SIZE]
    assert kernel.written == SIZE
    assert kernel.lanes == SIZE // 2
    eager = kernels_of(trace(Block(what)).steps)
    assert sum(each.bytes_moved for each in eager[1:-1]) >= 2 * SIZE


def test_what_was_read_before_is_in_the_cache():
    (kernel,) = between(F.relu)
    assert kernel.reads == ((SIZE, 0.0),), "the product has just written it"


def test_a_product_in_between_parts_what_is_fused():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, images: Tensor) -> Tensor:
            kept = F.relu(self.first(images))
            return F.relu(self.second(kept) + kept).sum()

    kernels = fused_kernels_of(trace(Residual()).steps)
    assert [kernel.group for kernel in kernels] == ["gemm", "elementwise", "gemm", "elementwise"]
    assert kernels[1].written == SIZE, "once, for the product and for the sum behind it"
    assert [size for size, _ in kernels[3].reads] == [SIZE, SIZE]
    assert kernels[3].written == 2, "the sum"


def test_what_nobody_reads_is_not_written():
    (kernel,) = between(lambda x: F.max_pool2d(x, 1, return_indices=True)[0])
    assert kernel.written == SIZE, "not the places of the largest ones, which are 64-bit integers"


class Convolutions(nn.Module):
    def __init__(self, groups: int = 1, width: int = 128, act: type[nn.Module] = nn.ReLU):
        super().__init__()
        layers = (nn.Conv2d(width, width, 3, padding=1, groups=groups) for _ in range(2))
        self.body = nn.Sequential(nn.Conv2d(3, width, 1), *(nn.Sequential(layer, act()) for layer in layers))

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images)


def test_a_bias_is_added_by_the_next_pass_where_there_is_one():
    shape = (IMAGES, 3, 16, 16)
    (_, *body), eager = ([k.group for k in found] for found in (
        fused_kernels_of(trace(Convolutions(), shape, channels_last=True).steps),
        kernels_of(trace(Convolutions(), shape, channels_last=True).steps),
    ))  # fmt: skip
    assert eager.count("bias") == 3
    assert body == ["bias", "conv", "elementwise", "conv", "elementwise"], "the first is read by a convolution"
    *_, last = fused_kernels_of(trace(nn.Conv2d(64, 64, 3), (IMAGES, 64, 16, 16), channels_last=True).steps)
    assert last.group == "bias", "of a result that the caller reads"


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        pytest.param(1, True, id="plain convolutions"),
        pytest.param(128, True, id="depthwise ones"),
        pytest.param(4, False, id="grouped ones"),
    ],
)
def test_images_are_laid_out_as_the_compiler_has_them(groups, expected):
    assert wants_channels_last(trace(Convolutions(groups), (IMAGES, 3, 16, 16))) is expected


def test_a_network_without_convolutions_is_left_as_it_is():
    assert not wants_channels_last(trace(Block(F.relu)))
