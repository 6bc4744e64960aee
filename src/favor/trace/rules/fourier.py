"""Fourier transforms: 5 N log2 N operations for a complex transform of N points, half for a real one."""

from collections.abc import Sequence
from math import log2, prod

import torch
from torch import Tensor

from favor.trace.rules.registry import Call, Work, rule

aten = torch.ops.aten


def fft_flops(signal: Tensor, dims: Sequence[int], per_point: float) -> int:
    """Operations of the transforms of all signals in a tensor along `dims`.

    >>> fft_flops(torch.empty(3, 8), [1], 5)
    360
    """
    points = prod(signal.shape[dim] for dim in dims)
    return round(per_point * signal.numel() * log2(points)) if points > 1 else 0


@rule(aten._fft_c2c, kind="fourier")
def _complex(call: Call) -> Work:
    flops = fft_flops(call.outputs[0], call.args[1], 5)
    return Work(fft_flops=flops, mixed_ops=flops)


@rule(aten._fft_r2c, kind="fourier")
def _real_to_complex(call: Call) -> Work:
    signal, dims, onesided = call.inputs[0], call.args[1], call.args[3]
    # A two-sided transform of real numbers is the one-sided and a mirror; the benchmark counts it as a complex one.
    return Work(fft_flops=fft_flops(signal, dims, 2.5), mixed_ops=fft_flops(signal, dims, 2.5 if onesided else 5))


@rule(aten._fft_c2r, kind="fourier")
def _complex_to_real(call: Call) -> Work:
    flops = fft_flops(call.outputs[0], call.args[1], 2.5)
    return Work(fft_flops=flops, mixed_ops=flops)
