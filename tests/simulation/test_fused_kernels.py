"""From operators to the kernels of a compiled network: what becomes one pass, and what it reads and writes."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from favor.simulation.fused_kernels import fused_kernels_of, wants_channels_last
from favor.simulation.kernels import Kernel, kernels_of
from favor.trace.fake_device import trace_on
from favor.trace.operator_trace import Trace

HALF = torch.float16
SHAPE = (4, 3, 8, 64)
SIZE = math.prod(SHAPE) * 2
IMAGES = (4, 3, 16, 16)


class Running(nn.Module):
    """What a test wants to be run, with two linear layers, which are calls of a library."""

    def __init__(self, run):
        super().__init__()
        self.a, self.b, self.run = nn.Linear(64, 64), nn.Linear(64, 64), run

    def forward(self, images: Tensor) -> Tensor:
        return self.run(self, images)


def trace(model: nn.Module, shape: tuple[int, ...] = SHAPE, *, channels_last: bool = False) -> Trace:
    return trace_on("cuda", model.to(HALF), shape, dtype=HALF, channels_last=channels_last)


def fused(run) -> tuple[Kernel, ...]:
    return fused_kernels_of(trace(Running(run)))


def between(what) -> Kernel:
    """The kernel between two products."""
    first, kernel, last = fused(lambda layers, images: layers.b(what(layers.a(images))))
    assert (first.group, last.group) == ("gemm", "gemm")
    return kernel


def sizes(kernel: Kernel) -> list[int]:
    return [size for size, _ in kernel.reads]


def changed_in_part(x: Tensor) -> Tensor:
    out = x.clone()
    out[..., :8].add_(1)
    return out


def filled(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    out[..., :32] = x[..., 32:]
    out[..., 32:] = x[..., :32]
    return out


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(lambda x: F.relu(x), id="one operator"),
        pytest.param(lambda x: F.gelu(x + 1) * 2, id="a chain"),
        pytest.param(lambda x: x + F.relu(x) * torch.sigmoid(x), id="branches that meet again"),
        pytest.param(lambda x: F.relu(x).mul_(2).add_(x), id="operators in place"),
        pytest.param(changed_in_part, id="operators in place, of a part"),
        pytest.param(filled, id="a tensor that is filled in parts"),
        pytest.param(lambda x: F.layer_norm(x, (64,)) + x, id="a norm over channels"),
        pytest.param(lambda x: torch.softmax(x.float(), -1).half(), id="a softmax and its casts"),
        pytest.param(lambda x: torch.cat((x[..., :16] + 1, x[..., 16:] * 2), -1), id="parts put together again"),
        pytest.param(lambda x: x * x, id="the same one twice"),
        pytest.param(lambda x: x + x.roll(1, -1) - x.flip(-1), id="the same one in other orders"),
        pytest.param(lambda x: x + x[:, :1, :1, :1].expand_as(x), id="one number for all"),
        pytest.param(lambda x: F.max_pool2d(x, 1, return_indices=True)[0], id="places that nobody wants"),
    ],
)
def test_what_lies_between_two_products_is_one_pass_that_reads_and_writes_once(what):
    kernel = between(what)
    assert kernel.reads == ((SIZE, 0.0),), "which the product has just written"
    assert kernel.written == SIZE


def test_lanes_go_through_the_largest_tensor_once():
    assert between(lambda x: F.gelu(x + 1) * 2).lanes == SIZE // 2
    assert between(lambda x: torch.stack((x + 1, x * 2)).amax(0)).lanes == SIZE


def test_eager_makes_more_passes_of_it():
    def chain(layers: Running, images: Tensor) -> Tensor:
        return layers.b(F.gelu(layers.a(images) + 1) * 2)

    for found, passes in ((fused(chain), 1), (kernels_of(trace(Running(chain)).steps), 3)):
        assert sum(kernel.bytes_moved for kernel in found[1:-1]) == passes * 2 * SIZE


@pytest.mark.parametrize(
    ("what", "read"),
    [
        pytest.param(lambda x: torch.cat((F.relu(x[..., :48]), torch.sigmoid(x[..., 48:])), -1), 1, id="in parts"),
        pytest.param(lambda x: F.relu(x) + torch.sigmoid(x[..., :1]), 1, id="all of it, and a part again"),
        pytest.param(lambda x: F.relu(x[..., :16]).repeat(1, 1, 1, 4), 1 / 4, id="a part alone"),
    ],
)
def test_the_images_are_read_as_far_as_they_are_wanted(what, read):
    first, _ = fused(lambda layers, images: layers.a(what(images)))
    assert sum(sizes(first)) == read * SIZE
    assert first.written == SIZE


def test_of_a_table_only_what_is_picked_is_read():
    class Picking(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10_000, 64)
            self.layer = nn.Linear(64, 64)

        def forward(self, images: Tensor) -> Tensor:
            return self.layer(self.table(images[:, 0, 0, :8].long()) + 1)

    kernel, _ = fused_kernels_of(trace(Picking()))
    rows = SHAPE[0] * 8
    assert rows * 64 * 2 <= sum(sizes(kernel)) <= 1.2 * rows * 64 * 2
    assert kernel.lanes <= math.prod(SHAPE)


def test_a_product_in_between_parts_what_is_fused():
    def residual(layers: Running, images: Tensor) -> Tensor:
        kept = F.relu(layers.a(images))
        return F.relu(layers.b(kept) + kept).sum()

    kernels = fused(residual)
    assert [kernel.group for kernel in kernels] == ["gemm", "fused", "gemm", "fused_reduction_long"]
    assert kernels[1].written == SIZE, "once, for the product and for the sum behind it"
    assert sizes(kernels[3]) == [SIZE, SIZE]
    assert kernels[3].written == 2, "the sum, which is the result"


@pytest.mark.parametrize(
    ("library", "group"),
    [
        pytest.param(lambda x: F.scaled_dot_product_attention(x, x, x), "attention_flash", id="attention"),
        pytest.param(lambda x: torch.fft.fft(x.float()).real.half(), "fourier", id="a Fourier transform"),
        pytest.param(lambda x: torch.linalg.inv(x.float()[..., :8]).half(), "other", id="a matrix's inverse"),
        pytest.param(lambda x: torch.sort(x, -1)[0], "sort", id="a sort"),
        pytest.param(lambda x: x @ x.mT, "bmm", id="a product"),
    ],
)
def test_calls_of_libraries_stay(library, group):
    groups = [kernel.group for kernel in fused(lambda layers, images: F.relu(library(F.relu(images))))]
    assert group in groups[1:-1]
    assert groups[0] == groups[-1] == "fused"


@pytest.mark.parametrize(
    ("what", "group"),
    [
        pytest.param(lambda x: F.gelu(x + 1) * 2, "fused", id="element by element"),
        pytest.param(lambda x: x.transpose(1, 2).contiguous() + 1, "fused_transpose", id="another order"),
        pytest.param(lambda x: F.layer_norm(x, (64,)) + x, "fused_norm", id="a norm over channels"),
        pytest.param(lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)), "fused_reduction", id="a gate"),
        pytest.param(
            lambda x: x * x.repeat(1, 1, 4, 1).mean((2, 3), keepdim=True), "fused_reduction_long", id="a long sum"
        ),
        pytest.param(lambda x: F.group_norm(x, 1) + x.mean(), "fused_group_norm", id="a group norm and a sum"),
        pytest.param(lambda x: F.avg_pool2d(x, 3, 1, 1) - x, "fused_pool", id="a pool"),
    ],
)
def test_a_pass_has_the_class_of_its_hardest_operator(what, group):
    assert between(what).group == group


def test_a_fused_group_norm_reads_its_input_twice():
    assert sizes(between(lambda x: F.group_norm(x, 1))) == [2 * SIZE]


def test_a_tensor_that_several_passes_fill_is_written_whole():
    def halves(layers: Running, images: Tensor) -> Tensor:
        out, first = torch.empty_like(images), layers.a(images)
        out[..., :32] = first[..., :32]
        out[..., 32:] = layers.b(first)[..., 32:]
        return layers.b(out)

    passes = [kernel for kernel in fused(halves) if kernel.group == "fused"]
    assert [kernel.written for kernel in passes] == [SIZE / 2, SIZE / 2]
    assert [sizes(kernel) for kernel in passes] == [[SIZE / 2], [SIZE / 2]]


def test_what_is_spread_is_read_once():
    class Scaled(Running):
        def __init__(self):
            super().__init__(lambda layers, images: layers.b(layers.a(images) * layers.scale.expand(SHAPE)))
            self.scale = nn.Parameter(torch.ones(1))

    _, kernel, _ = fused_kernels_of(trace(Scaled()))
    assert sizes(kernel) == [SIZE, 2]


def test_who_reads_the_same_tensor_reads_it_together():
    shared, *_ = fused(lambda layers, images: layers.a(F.relu(images)) + layers.b(torch.sigmoid(images)))
    assert sizes(shared) == [SIZE]
    assert shared.written == 2 * SIZE


def test_kernels_come_in_an_order_in_which_they_can_run():
    """A shortcut that is made with what is read early, and read late, as ResNet-D's."""

    def shortcut(layers: Running, images: Tensor) -> Tensor:
        kept = F.relu(layers.a(images))
        long = F.relu(layers.b(kept))
        return long + torch.sigmoid(kept)

    kernels = fused(shortcut)
    assert [kernel.group for kernel in kernels] == ["gemm", "fused", "gemm", "fused"]
    assert (SIZE, 0.0) in kernels[2].reads, "the pass before has made it"
    assert kernels[3].reads == ((SIZE, 0.0), (SIZE, kernels[2].bytes_moved)), "the shortcut is older than the product"


def test_a_pass_puts_what_was_touched_before_it_further_away():
    def passes(layers: Running, images: Tensor) -> Tensor:
        first = layers.a(images)
        return layers.b(F.relu(images) + 1) + first

    _, *others, last = fused(passes)
    (_, near), (_, far) = sorted(last.reads, key=lambda read: read[1])
    assert near == 0
    assert far == sum(kernel.bytes_moved for kernel in others)


class Convolutions(nn.Module):
    """Two convolutions with groups, and plain ones after them."""

    def __init__(self, groups: int = 1, plain: int = 0):
        super().__init__()
        self.first = nn.Conv2d(3, 128, 1)
        layers = (nn.Conv2d(128, 128, 3, padding=1, groups=each) for each in (groups, groups, *[1] * plain))
        self.body = nn.Sequential(*(nn.Sequential(layer, nn.ReLU()) for layer in layers))

    def forward(self, images: Tensor) -> Tensor:
        return self.body(self.first(images))


def groups_of(run, shape: tuple[int, ...]) -> list[str]:
    return [kernel.group for kernel in fused_kernels_of(trace(run, shape, channels_last=True))]


def test_a_bias_is_added_by_the_next_pass_where_there_is_one():
    first, *body = groups_of(Convolutions(), IMAGES)
    assert first == "conv_first"
    assert body == ["bias", "conv", "fused", "conv", "fused"], "the first is read by a convolution"
    assert groups_of(nn.Conv2d(64, 64, 3), (4, 64, 16, 16)) == ["conv", "bias"], "the caller reads it"


def test_a_bias_that_a_library_and_a_pass_want_is_added_at_once():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (nn.Conv2d(64, 64, 3, padding=1) for _ in range(2))

        def forward(self, images: Tensor) -> Tensor:
            middle = self.first(images)
            return self.second(middle) + F.relu(middle)

    assert groups_of(Both(), (4, 64, 16, 16))[:2] == ["conv", "bias"]


class Deep(nn.Module):
    """A convolution and many operators after it."""

    def __init__(self, operators: int):
        super().__init__()
        self.layer, self.operators = nn.Conv2d(3, 128, 3), operators

    def forward(self, images: Tensor) -> Tensor:
        out = self.layer(images)
        for _ in range(self.operators):
            out = F.relu(out)
        return out


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        pytest.param(Convolutions(), True, id="plain convolutions"),
        pytest.param(Convolutions(groups=128), True, id="depthwise ones"),
        pytest.param(Convolutions(groups=2), False, id="grouped ones"),
        pytest.param(Convolutions(groups=2, plain=1), False, id="half of the work in groups"),
        pytest.param(Convolutions(groups=2, plain=3), True, id="a quarter of the work in groups"),
        pytest.param(Convolutions(groups=16, plain=1), True, id="most of them grouped, but little of the work"),
        pytest.param(nn.ConvTranspose2d(3, 64, 3), True, id="a transposed one"),
        pytest.param(Deep(200), True, id="many operators to a convolution"),
        pytest.param(Deep(400), False, id="too many"),
        pytest.param(nn.Flatten(), False, id="none"),
    ],
)
def test_images_are_laid_out_as_the_compiler_has_them(network, expected):
    assert wants_channels_last(trace(network, IMAGES)) is expected


def test_a_network_that_runs_nothing_has_no_kernels():
    assert fused_kernels_of(trace(nn.Flatten())) == ()
