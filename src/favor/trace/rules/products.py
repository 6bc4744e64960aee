"""Matrix products, convolutions, attention and dense linear algebra: where `macs_matmul` comes from."""

from math import prod

import torch
from torch import Tensor

from favor.trace.rules.normalization import SOFTMAX
from favor.trace.rules.registry import NOTHING, Call, Work, named, rule

aten = torch.ops.aten


def _products(out: Tensor, inner: int, bias: int = 0) -> Work:
    """`out.numel()` dot products of length `inner`; a complex multiply-add is four real ones, one of integers none."""
    if not (out.is_complex() or out.is_floating_point()):
        return NOTHING
    real = 4 if out.is_complex() else 1
    macs = real * out.numel() * inner
    return Work(macs_matmul=macs, other_flops=bias, mixed_ops=0, activations=out.numel())


@rule(aten.mm, aten.bmm, aten.mv, kind="matmul")
def _matmul(call: Call) -> Work:
    return _products(call.outputs[0], call.inputs[0].shape[-1])


@rule(*named("dot", "vdot"), kind="matmul")
def _dot(call: Call) -> Work:
    return _products(call.outputs[0], call.inputs[0].shape[0])


@rule(*named("addmm", "baddbmm", "addmv", "_addmm_activation"), kind="matmul")
def _add_matmul(call: Call) -> Work:
    out = call.outputs[0]
    return _products(out, call.inputs[1].shape[-1], bias=out.numel() if call.kwargs.get("beta", 1) != 0 else 0)


@rule(*named("addbmm"), kind="matmul")
def _add_batch_matmul(call: Call) -> Work:
    out, batched = call.outputs[0], call.inputs[1]
    return _products(out, batched.shape[0] * batched.shape[-1], bias=out.numel())


@rule(*named("addr"), kind="matmul")
def _add_outer(call: Call) -> Work:
    return _products(call.outputs[0], 1, bias=call.outputs[0].numel())


@rule(aten.linear, kind="matmul")
def _linear(call: Call) -> Work:
    out = call.outputs[0]
    return _products(out, call.inputs[0].shape[-1], bias=out.numel() if len(call.inputs) > 2 else 0)


@rule(*named("linear_backward"), kind="matmul")
def _linear_backward(call: Call) -> Work:
    data, grad, _weight = call.inputs
    wanted = call.args[3]
    per_product = grad.numel() * data.shape[-1]
    made = [t for t, want in zip(call.outputs, wanted[:2], strict=False) if want]
    return Work(
        macs_matmul=per_product * sum(wanted[:2]),
        other_flops=grad.numel() if wanted[2] else 0,
        activations=sum(t.numel() for t in made),
    )


@rule(*named("_trilinear"), kind="matmul")
def _trilinear(call: Call) -> Work:
    spread = prod(max(sizes) for sizes in zip(*(t.shape for t in call.inputs[:2]), strict=False))
    return Work(macs_matmul=2 * spread, activations=call.outputs[0].numel())


# ---- convolutions


def _convolution_macs(data: Tensor, weight: Tensor, out: Tensor, transposed: bool) -> int:
    """Each output element (each input element if transposed) meets one filter of the weight."""
    moved = data if transposed else out
    real = 4 if weight.is_complex() else 1
    return real * moved.numel() * prod(weight.shape[1:])


@rule(aten.convolution, aten.convolution_overrideable, aten._convolution, kind="convolution")
def _convolution(call: Call) -> Work:
    out = call.outputs[0]
    return Work(
        macs_matmul=_convolution_macs(call.inputs[0], call.inputs[1], out, transposed=bool(call.args[6])),
        other_flops=out.numel() if call.args[2] is not None else 0,
        activations=out.numel(),
    )


@rule(
    *named(
        "mkldnn_convolution",
        "cudnn_convolution",
        "miopen_convolution",
        "thnn_conv2d",
        "slow_conv3d_forward",
        "_slow_conv2d_forward",
        "_conv_depthwise2d",
        "conv_depthwise3d",
    ),
    kind="convolution",
)
def _device_convolution(call: Call) -> Work:
    out = call.outputs[0]
    return Work(
        macs_matmul=_convolution_macs(call.inputs[0], call.inputs[1], out, transposed=False),
        other_flops=out.numel() if len(call.inputs) > 2 else 0,
        activations=out.numel(),
    )


@rule(aten.convolution_backward, kind="convolution")
def _convolution_backward(call: Call) -> Work:
    grad, data, weight = call.inputs[:3]
    wants_data, wants_weight, wants_bias = call.args[10]
    macs = _convolution_macs(data, weight, grad, transposed=bool(call.args[7]))
    return Work(
        macs_matmul=macs * (wants_data + wants_weight),
        other_flops=grad.numel() if wants_bias else 0,
        activations=data.numel() * wants_data + weight.numel() * wants_weight,
    )


# ---- attention
#
# A fused attention counts what its parts would: both products, the scaling of queries and keys, the mask, the softmax.
# So a network has the same figures on meta tensors, where PyTorch takes attention apart, and elsewhere.


def _attention_forward(query: Tensor, key: Tensor, value: Tensor, masked: bool, tokens: int = -2) -> Work:
    heads_and_queries = query.numel() // query.shape[-1]
    scores = heads_and_queries * key.shape[tokens]
    out = heads_and_queries * value.shape[-1]
    return Work(
        macs_matmul=scores * (query.shape[-1] + value.shape[-1]),
        other_flops=query.numel() + key.numel() + masked * scores + SOFTMAX * scores,
        mixed_ops=query.numel() + masked * scores + SOFTMAX * scores,
        activations=scores + out,
    )


def _attention_backward(query: Tensor, key: Tensor, value: Tensor, tokens: int = -2) -> Work:
    """Scores made again, then the gradients of values, probabilities, queries and keys: five products."""
    heads_and_queries = query.numel() // query.shape[-1]
    scores = heads_and_queries * key.shape[tokens]
    # Beyond the products: the softmax made again, its backward, and scaling the two gradients.
    other = SOFTMAX * scores + 4 * scores + query.numel() + key.numel()
    return Work(
        macs_matmul=scores * (3 * query.shape[-1] + 2 * value.shape[-1]),
        other_flops=other,
        mixed_ops=other,
        activations=2 * scores + query.numel() + key.numel() + value.numel(),
    )


@rule(
    *named(
        "scaled_dot_product_attention",
        "_scaled_dot_product_attention_math_for_mps",
        "_scaled_dot_product_attention_math",
        "_scaled_dot_product_fused_attention_overrideable",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
    ),
    kind="attention",
)
def _fused_attention(call: Call) -> Work:
    query, key, value, *others = call.inputs
    # A mask is the only further tensor that has a column for every key.
    masked = any(other.dim() >= 2 and other.shape[-1] == key.shape[-2] for other in others)
    return _attention_forward(query, key, value, masked)


@rule(
    *named(
        "_scaled_dot_product_fused_attention_overrideable_backward",
        "_scaled_dot_product_efficient_attention_backward",
        "_scaled_dot_product_cudnn_attention_backward",
        "_scaled_dot_product_flash_attention_backward",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    kind="attention",
)
def _fused_attention_backward(call: Call) -> Work:
    query, key, value = call.inputs[1:4]
    return _attention_backward(query, key, value)


@rule(*named("_flash_attention_forward", "_efficient_attention_forward", "_cudnn_attention_forward"), kind="attention")
def _tokens_first_attention(call: Call) -> Work:
    query, key, value = call.inputs[:3]
    return _attention_forward(query, key, value, masked=False, tokens=-3)


@rule(
    *named("_flash_attention_backward", "_efficient_attention_backward", "_cudnn_attention_backward"), kind="attention"
)
def _tokens_first_attention_backward(call: Call) -> Work:
    query, key, value = call.inputs[1:4]
    return _attention_backward(query, key, value, tokens=-3)


# ---- distances and dense linear algebra


@rule(*named("_euclidean_dist"), kind="matmul")
def _euclidean_distance(call: Call) -> Work:
    left, right = call.inputs
    out = call.outputs[0]
    return Work(
        macs_matmul=out.numel() * left.shape[-1],
        other_flops=3 * (left.numel() + right.numel()) + 3 * out.numel(),
        mixed_ops=out.numel(),
        activations=out.numel(),
    )


@rule(*named("_cdist_forward", "cdist"), kind="linalg")
def _distance(call: Call) -> Work:
    return Work(other_flops=call.outputs[0].numel() * (3 * call.inputs[0].shape[-1] + 1))


@rule(*named("_cdist_backward"), kind="linalg")
def _distance_backward(call: Call) -> Work:
    grad, left = call.inputs[:2]
    return Work(other_flops=grad.numel() * 5 * left.shape[-1])


def _square(call: Call) -> tuple[int, int]:
    """Batch and order of the call's first matrix."""
    matrix = call.inputs[0]
    return prod(matrix.shape[:-2]), matrix.shape[-1]


@rule(*named("linalg_inv_ex", "inverse", "linalg_inv"), kind="linalg")
def _inverse(call: Call) -> Work:
    batch, n = _square(call)
    return Work(other_flops=2 * batch * n**3)


@rule(
    *named("linalg_lu_factor_ex", "_linalg_det", "_linalg_slogdet", "linalg_ldl_factor_ex", "linalg_lu"), kind="linalg"
)
def _lu(call: Call) -> Work:
    batch, n = _square(call)
    return Work(other_flops=2 * batch * n**3 // 3)


@rule(*named("linalg_cholesky_ex", "linalg_cholesky"), kind="linalg")
def _cholesky(call: Call) -> Work:
    batch, n = _square(call)
    return Work(other_flops=batch * n**3 // 3)


@rule(*named("_linalg_solve_ex"), kind="linalg")
def _solve(call: Call) -> Work:
    batch, n = _square(call)
    columns = call.outputs[0].numel() // max(1, batch * n)
    return Work(other_flops=batch * (2 * n**3 // 3 + 2 * n * n * columns))


@rule(*named("linalg_lu_solve"), kind="linalg")
def _solve_factored(call: Call) -> Work:
    return Work(other_flops=2 * call.outputs[0].numel() * call.inputs[0].shape[-1])


@rule(*named("cholesky_solve"), kind="linalg")
def _solve_cholesky(call: Call) -> Work:
    return Work(other_flops=2 * call.outputs[0].numel() * call.inputs[1].shape[-1])  # the right-hand side comes first


@rule(*named("linalg_solve_triangular"), kind="linalg")
def _triangular_solve(call: Call) -> Work:
    return Work(other_flops=call.outputs[0].numel() * call.inputs[0].shape[-1])


@rule(*named("triangular_solve"), kind="linalg")
def _triangular_solve_reversed(call: Call) -> Work:
    return Work(other_flops=call.outputs[0].numel() * call.inputs[1].shape[-1])  # the right-hand side comes first


@rule(*named("linalg_qr", "geqrf", "linalg_householder_product"), kind="linalg")
def _qr(call: Call) -> Work:
    """Householder: 2 m n^2 - 2/3 n^3 for R, as much again for Q."""
    *batch, rows, columns = call.inputs[0].shape
    n, m = min(rows, columns), max(rows, columns)
    return Work(other_flops=prod(batch) * 2 * (2 * m * n * n - 2 * n**3 // 3))


@rule(*named("_linalg_svd", "linalg_lstsq"), kind="linalg")
def _svd(call: Call) -> Work:
    """Golub and Van Loan's 4 m^2 n + 8 m n^2 + 9 n^3 for U, S and V."""
    *batch, rows, columns = call.inputs[0].shape
    n, m = min(rows, columns), max(rows, columns)
    return Work(other_flops=prod(batch) * (4 * m * m * n + 8 * m * n * n + 9 * n**3))


@rule(*named("_linalg_eigh", "linalg_eig", "_linalg_eigvals"), kind="linalg")
def _eigen(call: Call) -> Work:
    batch, n = _square(call)
    return Work(other_flops=9 * batch * n**3)


@rule(*named("linalg_matrix_exp"), kind="linalg")
def _matrix_exponential(call: Call) -> Work:
    """Scaling and squaring with a Taylor polynomial of degree 18: about ten products."""
    batch, n = _square(call)
    return Work(macs_matmul=10 * batch * n**3, activations=10 * batch * n * n)


@rule(*named("linalg_cross"), kind="elementwise")
def _cross(call: Call) -> Work:
    return Work(other_flops=3 * call.outputs[0].numel())
