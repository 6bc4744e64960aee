"""From operators to kernels: the kernels that a GPU runs for each operator of a trace, independent of the device.

A kernel belongs to an operator class, whose kernels share one efficiency. It states its demand for the three resources
of a GPU: multiply-adds of the tensor cores (matrix units), operations of the CUDA cores (`lanes`), and memory traffic.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, log2, prod
from typing import Literal

import torch

from favor.simulation.tiles import Cut, cuts
from favor.trace.operator_trace import Op, Step, TensorSpec

HALF = frozenset({torch.float16, torch.bfloat16})
Unit = Literal["fp16", "bf16", "tf32", "fp32"]
_FAR = float("inf")


CLASSES = (
    *("gemm", "gemm_unaligned", "gemm_full", "bmm", "bmm_unaligned", "bmm_full", "attention_flash"),
    *("attention_efficient", "conv", "conv_pointwise", "conv_pointwise_last", "conv_first", "conv_patch"),
    *("conv_grouped", "conv_full", "conv_full_pointwise", "conv_full_3x3", "gemm_tf32", "conv_tf32"),
    *("layout", "bias", "depthwise_small", "depthwise_middle", "depthwise_large", "depthwise_huge"),
    *("depthwise_last_small", "depthwise_last_middle", "depthwise_last_large", "depthwise_last_huge"),
    *("batch_norm", "batch_norm_last", "layer_norm", "layer_norm_strided", "group_norm", "softmax"),
    *("elementwise", "elementwise_mixed", "elementwise_spread", "elementwise_strided", "activation"),
    *("cast", "copy", "transpose", "cat", "cat_strided", "rearrange", "gather", "resize", "pool", "reduction"),
    *("fourier", "sort", "factory", "other"),
    *("fused", "fused_transpose", "fused_norm", "fused_reduction", "fused_reduction_long"),
    *("fused_group_norm", "fused_pool"),
)
ELEMENT_BY_ELEMENT = frozenset(
    {
        *("layout", "bias", "batch_norm", "batch_norm_last", "layer_norm", "layer_norm_strided", "group_norm"),
        *("softmax", "elementwise", "elementwise_mixed", "elementwise_spread", "elementwise_strided", "activation"),
        *("cast", "copy", "transpose", "cat", "cat_strided", "rearrange", "gather", "pool", "reduction"),
        *("fused", "fused_transpose", "fused_norm", "fused_reduction", "fused_reduction_long"),
        *("fused_group_norm", "fused_pool"),
    }
)
"""Classes in which `lanes` counts elements, each of which takes a few float32 operations. In the others it counts
loads, such as the window of a depthwise convolution."""


class Input(int):
    """The index of an input, which stands for its reuse distance until the calls before it are known."""


Reads = tuple[tuple[int, float], ...]
"""The bytes of each input and its reuse distance: the bytes touched since it was last used, an `Input` until known."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel: its class and its work.

    `macs` are multiply-adds on tensor cores of one type, padding included. `padded` are those of a float32 product when
    TF32 units pad it and CUDA cores do not; 0 if there is no difference. `lanes` is the work of the CUDA cores,
    `blocks` the number of thread blocks, `steps` the length of a sequential chain. `reads` are the bytes of each input
    with its reuse distance: a cache larger than both still holds the input. `other_cuts` are multiply-adds and blocks
    of other tilings, for devices that few blocks would leave idle.
    """

    group: str
    macs: int = 0
    unit: Unit = "fp16"
    lanes: int = 0
    blocks: int = 0
    steps: int = 0
    reads: Reads = ()
    written: int = 0
    padded: int = 0
    other_cuts: tuple[tuple[int, int], ...] = ()

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written, as if there were no cache."""
        return sum(size for size, _ in self.reads) + self.written

    def after(self, distances: Sequence[float]) -> "Kernel":
        """The kernel with the reuse distances of its inputs filled in."""
        reads = tuple([(size, distances[at] if isinstance(at, Input) else at) for size, at in self.reads])
        return Kernel(
            self.group, self.macs, self.unit, self.lanes, self.blocks, self.steps, reads, self.written, self.padded,
            self.other_cuts,
        )  # fmt: skip


def runs_kernels(op: Op) -> bool:
    """Whether an operator runs kernels; views and uninitialized tensors do not."""
    return op.kind != "view" and op.bytes_read + op.bytes_written > 0


def kernels_of(steps: Sequence[Step]) -> tuple[Kernel, ...]:
    """The kernels of the steps of a trace, in order."""
    return tuple(_kernels(steps))


def _kernels(steps: Sequence[Step]) -> Iterator[Kernel]:
    reuse = ReuseDistances()
    priced: dict[tuple[int, tuple[int, ...]], list[Kernel]] = {}
    for op, used in steps:
        if not runs_kernels(op):
            continue
        # The work depends on the call and on which inputs are the same tensor; only distances depend on the past.
        sources = tuple(map(used.index, used[: len(op.inputs)]))
        key = (id(op), sources)
        if key not in priced:
            priced[key] = kernels_of_call(op, sources)
        distances = reuse.touch(used, op.bytes_read + op.bytes_written)
        for kernel in priced[key]:
            yield kernel.after(distances)


class ReuseDistances:
    """The reuse distance of every storage: the bytes touched since its last use."""

    def __init__(self) -> None:
        self._touched = 0
        self._last: dict[int, int] = {}

    def touch(self, used: Sequence[int], moved: int) -> list[float]:
        """The reuse distances of storages at a call that uses them and moves so many bytes."""
        distances = [float(self._touched - self._last[storage]) if storage in self._last else _FAR for storage in used]
        self._touched += moved
        for storage in used:
            self._last[storage] = self._touched
        return distances


def kernels_of_call(op: Op, sources: Sequence[int]) -> list[Kernel]:
    """The kernels of one call; `sources` maps every input to the first input that is the same tensor."""
    return list(_PRICES.get(op.kind, _other)(op, _read_sizes(op, sources)))


def _read_sizes(op: Op, sources: Sequence[int]) -> Reads:
    """The bytes read of each distinct input, scaled so that their sum is the trace's figure."""
    asked: dict[int, int] = {}
    for spec, source in zip(op.inputs, sources, strict=True):
        asked.setdefault(source, prod(spec.shape) * spec.dtype.itemsize)
    total = sum(asked.values())
    if not total:
        return ()
    return tuple((round(size * op.bytes_read / total), Input(source)) for source, size in asked.items())


def _elements(spec: TensorSpec) -> int:
    return prod(spec.shape)


def _product_unit(dtype: torch.dtype) -> Unit:
    """The units of a matrix product; by default PyTorch uses TF32 for convolutions only."""
    return "fp16" if dtype == torch.float16 else "bf16" if dtype == torch.bfloat16 else "fp32"


def _is_channels_last(spec: TensorSpec) -> bool:
    """Whether an image tensor is in the memory format channels last."""
    return len(spec.shape) == 4 and spec.shape[1] > 1 and spec.strides[1] == 1 and prod(spec.shape[2:]) > 1


def _is_dense(spec: TensorSpec) -> bool:
    """Whether a tensor is contiguous."""
    expected = 1
    for length, stride in zip(reversed(spec.shape), reversed(spec.strides), strict=True):
        if length > 1 and stride != expected:
            return False
        expected *= length
    return True


def memory_order(spec: TensorSpec) -> tuple[int, ...]:
    """The axes from the slowest to the fastest in memory, without those of length 1 and broadcast ones."""
    axes = [axis for axis, length in enumerate(spec.shape) if length > 1 and spec.strides[axis]]
    return tuple(sorted(axes, key=lambda axis: -spec.strides[axis]))


# ---- matrix products


def _product(op: Op, reads: Reads) -> Iterator[Kernel]:
    name = op.name.split(".")[1]
    factors = [spec for spec in op.inputs if len(spec.shape) >= 2]
    if len(factors) < 2:
        yield Kernel("reduction", lanes=op.work.macs_matmul, reads=reads, written=op.bytes_written)
        return
    left, right = factors[-2:]
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    batch = prod(left.shape[:-2])
    half = left.dtype in HALF
    (macs, blocks), *others = _effective(cuts(rows, columns, inner, batch))
    aligned = all(map(_is_aligned, (left, right, op.outputs[0]))) or not half
    group = "bmm" if name in ("bmm", "baddbmm") and batch > 1 else "gemm"
    if not half:
        group += "_full"
    elif not aligned:
        group += "_unaligned"
    unit = _product_unit(left.dtype)
    yield Kernel(group, macs, unit, blocks=blocks, reads=reads, written=op.bytes_written, other_cuts=tuple(others))


def _effective(ways: Sequence[Cut]) -> list[tuple[int, int]]:
    """Multiply-adds and blocks of tilings; more frequent reads count as more multiply-adds."""
    return [(round(cut.macs * cut.slower), cut.tiles) for cut in ways]


def _is_aligned(spec: TensorSpec) -> bool:
    """Whether every row of a matrix begins at a multiple of 8 elements, as fast half-precision kernels need it."""
    *_, rows, columns = spec.shape
    down, across = spec.strides[-2:]
    if across == 1:
        return (down if rows > 1 else columns) % 8 == 0
    return (across if columns > 1 else rows) % 8 == 0


def _convolution(op: Op, reads: Reads) -> Iterator[Kernel]:
    if op.name.split(".")[1] == "convolution_backward":
        yield from _convolution_backward(op, reads)
        return
    data, weight = op.inputs[:2]
    out = op.outputs[0]
    yield from _one_convolution(data, weight, out, reads, op.bytes_written)
    if len(op.inputs) > 2:  # cuDNN adds the bias in a separate kernel
        written = _elements(out) * out.dtype.itemsize
        yield Kernel("bias", lanes=_elements(out), reads=((written, 0.0),), written=written)


def _one_convolution(
    data: TensorSpec, weight: TensorSpec, out: TensorSpec, reads: Reads, written: int
) -> Iterator[Kernel]:
    if out.shape[-1] > data.shape[-1] and weight.shape[0] == data.shape[1]:  # transposed: input and output change roles
        data, out = out, data
    per_filter, window = weight.shape[1], prod(weight.shape[2:])
    groups = max(1, data.shape[1] // max(1, per_filter))
    pixels = _elements(out) // out.shape[1]
    filters = out.shape[1] // groups
    half = data.dtype in HALF
    unit = _product_unit(data.dtype) if half else "tf32"
    last = _is_channels_last(data)
    stride = max(1, round(data.shape[-1] / out.shape[-1]))
    if groups > 1 and per_filter == 1:
        yield _depthwise(out, window, last, reads, written)
        return
    if groups > 1:
        # Tensor cores multiply 16 x 16 channels at once; CUDA cores need no padding.
        padded_in, padded_out = 16 * ceil(per_filter / 16), 16 * ceil(filters / 16)
        padded = pixels * groups * padded_in * padded_out * window
        yield Kernel(
            "conv_grouped" if half else _full_precision_convolution(weight, stride),
            padded if half else pixels * groups * per_filter * filters * window,
            unit,
            pixels * groups * padded_out // 8,
            ceil(pixels / 128) * groups,
            0,
            reads,
            written,
            0 if half else padded,
        )
    else:
        padded = 8 * ceil(per_filter / 8) if half else per_filter
        (macs, blocks), *others = _effective(cuts(pixels, filters, padded * window))
        if not half:
            group = _full_precision_convolution(weight, stride)
        elif per_filter <= 4:
            group = "conv_first"
        elif window == 1:
            group = "conv_pointwise_last" if last else "conv_pointwise"
        elif stride > 1 and stride * stride == window:
            group = "conv_patch"
        else:
            group = "conv"
        yield Kernel(group, macs, unit, blocks=blocks, reads=reads, written=written, other_cuts=tuple(others))
    if half and not last and per_filter > 4 and window > 1:
        # Tensor-core kernels need channels last, so data is transposed before and after. A pointwise convolution is a
        # plain product in either format.
        size_in, size_out = (_elements(spec) * spec.dtype.itemsize for spec in (data, out))
        transposed = size_in + size_out
        yield Kernel("layout", lanes=_elements(data) + _elements(out), reads=((transposed, _FAR),), written=transposed)


def _full_precision_convolution(weight: TensorSpec, stride: int) -> str:
    """The class of a float32 convolution; CUDA cores use Winograd's algorithm for 3 x 3."""
    if prod(weight.shape[2:]) == 1:
        return "conv_full_pointwise"
    return "conv_full_3x3" if weight.shape[2:] == (3, 3) and stride == 1 else "conv_full"


_DEPTHWISE = {"small": 3 * 3, "middle": 5 * 5, "large": 7 * 7}
"""The largest window of each class of depthwise convolutions: libraries have other kernels for each size."""


def _depthwise(out: TensorSpec, window: int, last: bool, reads: Reads, written: int) -> Kernel:
    size = next((name for name, largest in _DEPTHWISE.items() if window <= largest), "huge")
    return Kernel(
        f"depthwise_last_{size}" if last else f"depthwise_{size}",
        lanes=_elements(out) * window,
        reads=reads,
        written=written,
    )


def _convolution_backward(op: Op, reads: Reads) -> Iterator[Kernel]:
    """The gradients of input and weight are one convolution each, with the work of the forward one."""
    grad, data, weight = op.inputs[:3]
    made = [spec for spec in op.outputs if len(spec.shape) == len(weight.shape)]
    for _ in made:
        yield from _one_convolution(data, weight, grad, reads, op.bytes_written // len(made))


def _attention(op: Op, reads: Reads) -> Iterator[Kernel]:
    query, key, value = op.inputs[:3] if "backward" not in op.name else op.inputs[1:4]
    queries, keys, width = query.shape[-2], key.shape[-2], query.shape[-1]
    heads = prod(query.shape[:-2])
    backward = "backward" in op.name
    flash = "flash" in op.name
    depth = _padded_width(width) + _padded_width(value.shape[-1])
    tile = 128 if flash else 64
    scores = heads * (tile * ceil(queries / tile)) * (64 * ceil(keys / 64))
    passes = 5 / 2 if backward else 1
    yield Kernel(
        "attention_flash" if flash else "attention_efficient",
        round(scores * depth * passes),
        _product_unit(query.dtype),
        round(scores * passes),
        heads * ceil(queries / tile),
        0,
        reads,
        op.bytes_written,
    )


def _padded_width(width: int) -> int:
    """The head width that the kernels are compiled for."""
    return next((compiled for compiled in (32, 64, 96, 128, 192, 256) if width <= compiled), width)


# ---- kernels bound by memory or CUDA cores


def _norm(op: Op, reads: Reads) -> Iterator[Kernel]:
    name = op.name.split(".")[1]
    data = op.inputs[0]
    # A backward pass sums the gradients of the weights in a second pass.
    is_read_twice = "backward" in name
    if "batch_norm" in name:
        group = "batch_norm_last" if _is_channels_last(data) else "batch_norm"
        # In training the statistics of the batch are computed, in another pass over the data, and returned.
        is_read_twice = is_read_twice or (len(op.outputs) > 1 and _elements(op.outputs[1]) > 0)
    elif "group_norm" in name:
        # A group does not fit into a multiprocessor: statistics and result are two passes.
        group, is_read_twice = "group_norm", True
    else:
        group = "layer_norm" if _is_dense(data) else "layer_norm_strided"
    if is_read_twice:
        reads = tuple((2 * size, distance) for size, distance in reads)
    yield Kernel(group, lanes=_elements(data), reads=reads, written=op.bytes_written)


def _elementwise(op: Op, reads: Reads) -> Iterator[Kernel]:
    out = op.outputs[0]
    large = [spec for spec in op.inputs if _elements(spec) * 2 > _elements(out)]
    name = op.name.split(".")[1].rstrip("_")
    if any(memory_order(spec) != memory_order(out) for spec in large):
        group = "elementwise_strided"
    elif name in _TRANSCENDENTAL:
        group = "activation"
    elif len({spec.dtype for spec in (*op.inputs, out) if _elements(spec) > 1}) > 1:
        group = "elementwise_mixed"
    elif any(_elements(spec) not in (1, _elements(out)) for spec in op.inputs):
        group = "elementwise_spread"
    else:
        group = "elementwise"
    yield Kernel(group, lanes=_elements(out), reads=reads, written=op.bytes_written)


def _foreach(op: Op, reads: Reads) -> Iterator[Kernel]:
    """A list of tensors in one kernel; PyTorch uses one per 20 million elements or 36 tensors."""
    elements = op.bytes_written // op.inputs[0].dtype.itemsize
    yield Kernel("elementwise", lanes=elements, reads=reads, written=op.bytes_written)


_TRANSCENDENTAL = frozenset(
    {
        *("gelu", "silu", "sigmoid", "tanh", "exp", "log", "mish", "hardswish", "hardsigmoid"),
        *("erf", "softplus", "pow", "sin", "cos", "elu", "log_sigmoid_forward"),
    }
)


def _copy(op: Op, reads: Reads) -> Iterator[Kernel]:
    name = op.name.split(".")[1]
    out = op.outputs[0] if op.outputs else op.inputs[0]
    source = op.inputs[-1] if name.startswith("copy") else op.inputs[0]
    if name in ("cat", "stack"):
        transposed = any(memory_order(spec) != memory_order(op.inputs[0]) for spec in op.inputs)
        group = "cat_strided" if transposed else "cat"
    elif name in ("constant_pad_nd", "roll", "im2col", "col2im", "flip") or "pad" in name:
        group = "rearrange"
    elif source.shape != out.shape or memory_order(source) != memory_order(out):
        group = "transpose"
    elif source.dtype != out.dtype:
        group = "cast"
    else:
        group = "copy"
    yield Kernel(group, lanes=_elements(out), reads=reads, written=op.bytes_written)


def _resize(op: Op, reads: Reads) -> Iterator[Kernel]:
    data, out = op.inputs[0], op.outputs[0]
    name = op.name
    if ("bilinear" in name or "bicubic" in name) and len(out.shape) == 4 and not _is_channels_last(data):
        # One thread computes a pixel of all images and channels, one after the other.
        pixels = prod(out.shape[2:])
        yield Kernel(
            "resize", lanes=_elements(out), blocks=ceil(pixels / 1024), steps=out.shape[0] * out.shape[1],
            reads=reads, written=op.bytes_written,
        )  # fmt: skip
        return
    yield Kernel("rearrange", lanes=_elements(out), reads=reads, written=op.bytes_written)


def _in_class(group: str, weight: Callable[[Op], int] | None = None) -> Callable[[Op, Reads], Iterator[Kernel]]:
    def price(op: Op, reads: Reads) -> Iterator[Kernel]:
        largest = max((_elements(spec) for spec in (*op.inputs, *op.outputs)), default=0)
        lanes = weight(op) if weight is not None else largest
        yield Kernel(group, lanes=lanes, reads=reads, written=op.bytes_written)

    return price


def _transform_lanes(op: Op) -> int:
    return op.work.fft_flops


def _sort_lanes(op: Op) -> int:
    elements = _elements(op.inputs[0])
    return elements * max(1, ceil(log2(max(2, op.inputs[0].shape[-1] if op.inputs[0].shape else 1))))


_other = _in_class("other", lambda op: op.work.flops)

_PRICES: dict[str, Callable[[Op, Reads], Iterator[Kernel]]] = {
    "matmul": _product,
    "convolution": _convolution,
    "attention": _attention,
    "norm": _norm,
    "elementwise": _elementwise,
    "foreach": _foreach,
    "copy": _copy,
    "resize": _resize,
    "softmax": _in_class("softmax"),
    "reduction": _in_class("reduction"),
    "pool": _in_class("pool"),
    "gather": _in_class("gather"),
    "scatter": _in_class("gather"),
    "fourier": _in_class("fourier", _transform_lanes),
    "sort": _in_class("sort", _sort_lanes),
    "factory": _in_class("factory"),
    "random": _in_class("factory"),
}
