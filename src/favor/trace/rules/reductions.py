"""Reductions, scans, sorting, pooling and resizing: prices in terms of input elements or taps per output."""

from collections.abc import Sequence
from math import ceil, log2, prod

import torch

from favor.trace.rules.registry import NOTHING, Call, Work, add_rule, elements, is_arithmetic, named, rule

aten = torch.ops.aten

# ---- reductions: operations per input element

_PRICES: dict[int, str] = {
    1: """
        sum mean nansum prod amax amin aminmax max min argmax argmin any all median nanmedian mode kthvalue trace histc
        count_nonzero bincount equal _unique2 unique_dim unique_consecutive nonzero masked_select embedding_renorm
    """,
    2: "norm linalg_vector_norm dist",
    4: "std var std_mean var_mean logsumexp",
}
# name -> what the benchmark's handles count per input and per output element
_MIXED_PRICES: dict[str, tuple[int, int]] = {
    "sum": (1, -1),
    "mean": (1, 0),
    "norm": (2, -1),
    "linalg_vector_norm": (2, -1),
}


def _price(name: str, per_input: int) -> None:
    mixed_in, mixed_out = _MIXED_PRICES.get(name, (0, 0))

    def work(call: Call) -> Work:
        if not is_arithmetic(call):
            return NOTHING
        taken, made = call.inputs[0].numel(), call.outputs[0].numel() if call.outputs else 0
        parts = 2 if call.inputs[0].dtype.is_complex else 1
        return Work(other_flops=parts * per_input * taken, mixed_ops=mixed_in * taken + mixed_out * made)

    # `max` and `min` of two tensors are element-wise and dispatch as `maximum` and `minimum`.
    add_rule(named(name), "reduction", work)


for _cost, _names in _PRICES.items():
    for _name in _names.split():
        _price(_name, _cost)


@rule(
    *named("cumsum", "cumprod", "cummax", "cummin", "_cummax_helper", "_cummin_helper", "logcumsumexp"),
    kind="reduction",
)
def _scan(call: Call) -> Work:
    shape = call.inputs[0].shape
    count = call.inputs[0].numel()
    if not is_arithmetic(call):
        return NOTHING
    # The benchmark prices a running sum as if every prefix were summed anew along the longest axis.
    return Work(other_flops=count, mixed_ops=count * (max(shape, default=1) - 1) // 2)


# ---- sorting: comparisons


@rule(*named("sort", "argsort", "msort"), kind="sort")
def _sort(call: Call) -> Work:
    values = call.inputs[0]
    dim = next((value for value in call.args[1:] if type(value) is int), -1)
    length = values.shape[dim] if values.dim() else 1
    return Work(other_flops=values.numel() * ceil(log2(length))) if length > 1 and is_arithmetic(call) else NOTHING


@rule(aten.topk, kind="sort")
def _topk(call: Call) -> Work:
    """Selection reads every element once; the k that are kept are sorted."""
    kept = max(1, int(call.args[1]))
    other = call.inputs[0].numel() + call.outputs[0].numel() * ceil(log2(kept))
    return Work(other_flops=other) if is_arithmetic(call) else NOTHING


# ---- pooling: taps per output element


def _window(kernel: int | Sequence[int], dims: int) -> int:
    sizes = [kernel] if isinstance(kernel, int) else list(kernel)
    return prod(sizes) if len(sizes) == dims else sizes[0] ** dims


def _pooling(name: str, dims: int, averages: bool) -> None:
    def work(call: Call) -> Work:
        taps = _window(call.args[1], dims)
        mixed = call.inputs[0].numel() if averages else 0
        return Work(other_flops=call.outputs[0].numel() * taps, mixed_ops=mixed)

    add_rule(named(name), "pool", work)


for _dims in (1, 2, 3):
    for _name, _averages in ((f"avg_pool{_dims}d", True), (f"max_pool{_dims}d_with_indices", False)):
        _pooling(_name, _dims, _averages)
_pooling("max_pool2d", 2, averages=False)
_pooling("mkldnn_max_pool2d", 2, averages=False)


@rule(
    *named("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"),
    *named("mkldnn_adaptive_avg_pool2d"),
    kind="pool",
)
def _adaptive_average(call: Call) -> Work:
    return Work(other_flops=call.inputs[0].numel(), mixed_ops=call.inputs[0].numel())


@rule(*named("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "fractional_max_pool2d"), kind="pool")
def _adaptive_maximum(call: Call) -> Work:
    return Work(other_flops=call.inputs[0].numel())


@rule(*named("avg_pool2d_backward", "avg_pool3d_backward"), kind="pool")
def _average_backward(call: Call) -> Work:
    dims = 2 if call.inputs[0].dim() <= 4 else 3
    return Work(other_flops=call.inputs[0].numel() * _window(call.args[2], dims))


@rule(
    *named(
        "_adaptive_avg_pool2d_backward",
        "_adaptive_avg_pool3d_backward",
        "adaptive_max_pool2d_backward",
        "adaptive_max_pool3d_backward",
        "max_pool2d_with_indices_backward",
        "max_pool3d_with_indices_backward",
    ),
    kind="pool",
)
def _spread_backward(call: Call) -> Work:
    return Work(other_flops=max(call.inputs[0].numel(), call.outputs[0].numel()))


# ---- resizing: a weighted sum of taps per output element

_TAPS = {
    "upsample_linear1d": 2,
    "upsample_bilinear2d": 4,
    "upsample_trilinear3d": 8,
    "upsample_bicubic2d": 16,
    "_upsample_bilinear2d_aa": 4,
    "_upsample_bicubic2d_aa": 16,
}


def _resizing(name: str, taps: int) -> None:
    mixed = 4 if "bilinear" in name else 0

    def work(call: Call) -> Work:
        out = call.outputs[0]
        # With antialiasing the window grows with the shrinking, along each axis.
        ratios = zip(call.inputs[0].shape[2:], out.shape[2:], strict=True)
        wider = prod(max(1, ceil(before / after)) for before, after in ratios) if name.endswith("_aa") else 1
        return Work(other_flops=out.numel() * (2 * taps * wider - 1), mixed_ops=mixed * out.numel())

    def backward(call: Call) -> Work:
        return Work(other_flops=2 * taps * call.inputs[0].numel())

    add_rule(named(name), "resize", work)
    add_rule(named(name + "_backward"), "resize", backward)


for _name, _taps in _TAPS.items():
    _resizing(_name, _taps)


@rule(
    *named("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    *named("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    kind="resize",
)
def _nearest(call: Call) -> Work:
    return Work(mixed_ops=call.outputs[0].numel())


@rule(
    *named("upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward"),
    *named("_upsample_nearest_exact1d_backward", "_upsample_nearest_exact2d_backward"),
    kind="resize",
)
def _nearest_backward(call: Call) -> Work:
    return Work(other_flops=call.inputs[0].numel())


@rule(*named("grid_sampler_2d", "grid_sampler_3d", "grid_sampler", "cudnn_grid_sampler"), kind="resize")
def _grid_sample(call: Call) -> Work:
    """Bilinear: 4 products and 3 sums per element, and 10 operations per point for its place and weights."""
    out, grid = call.outputs[0], call.inputs[1]
    return Work(other_flops=7 * out.numel() + 5 * grid.numel(), mixed_ops=4 * out.numel())


@rule(*named("grid_sampler_2d_backward", "grid_sampler_3d_backward"), kind="resize")
def _grid_sample_backward(call: Call) -> Work:
    grad, grid = call.inputs[0], call.inputs[2]
    return Work(other_flops=14 * grad.numel() + 10 * grid.numel())


@rule(*named("affine_grid_generator", "affine_grid_generator_backward"), kind="resize")
def _affine_grid(call: Call) -> Work:
    return Work(other_flops=5 * elements(call.outputs))


@rule(*named("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle"), kind="copy")
def _shuffle(call: Call) -> Work:
    return NOTHING
