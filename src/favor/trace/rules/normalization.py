"""Softmax and the norms.

Operations per element: softmax 5 (maximum, difference, exponential, sum, quotient). A norm over its own statistics 5
(sum, difference, square, sum of squares, times the reciprocal deviation) and 2 more for scale and shift; with given
statistics (batch norm at inference) 2, since scale and shift take the statistics up. The benchmark's convention has its
own figures (those of fvcore): 5 per element with an affine map and 4 without, batch norm 2 and 1.
"""

import torch

from favor.trace.rules.registry import Call, Work, named, rule

aten = torch.ops.aten

SOFTMAX = 5
_STATISTICS = 5
_AFFINE = 2


@rule(*named("_softmax", "_safe_softmax", "_log_softmax", "_masked_softmax", "softmax", "log_softmax"), kind="softmax")
def _softmax(call: Call) -> Work:
    count = SOFTMAX * call.outputs[0].numel()
    return Work(other_flops=count, mixed_ops=count)


@rule(*named("_softmax_backward_data", "_log_softmax_backward_data", "_masked_softmax_backward"), kind="softmax")
def _softmax_backward(call: Call) -> Work:
    """(grad - sum(grad * out)) * out: product, sum, difference, product."""
    return Work(other_flops=4 * call.outputs[0].numel(), mixed_ops=4 * call.outputs[0].numel())


def _norm(elements: int, affine: bool) -> Work:
    return Work(other_flops=elements * (_STATISTICS + _AFFINE * affine), mixed_ops=elements * (4 + affine))


@rule(aten.native_layer_norm, kind="norm")
def _layer_norm(call: Call) -> Work:
    return _norm(call.outputs[0].numel(), affine=call.args[2] is not None)


@rule(aten.native_group_norm, kind="norm")
def _group_norm(call: Call) -> Work:
    return _norm(call.outputs[0].numel(), affine=call.args[1] is not None)


@rule(*named("_fused_rms_norm", "rms_norm"), kind="norm")
def _rms_norm(call: Call) -> Work:
    """Square, sum, times the reciprocal; 1 more for the scale."""
    elements, affine = call.outputs[0].numel(), len(call.inputs) > 1
    return Work(other_flops=elements * (3 + affine), mixed_ops=elements * (3 + affine))


def _batch_norm(call: Call, training: bool) -> Work:
    elements, affine = call.outputs[0].numel(), call.args[1] is not None
    per_element = _STATISTICS + _AFFINE * affine if training else 2
    return Work(other_flops=elements * per_element, mixed_ops=elements * (1 + affine))


@rule(
    *named("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional"),
    *named("cudnn_batch_norm", "miopen_batch_norm"),
    kind="norm",
)
def _batch_norm_either(call: Call) -> Work:
    # The overload without running statistics has one argument less in front of the flag.
    flag = next(value for value in call.args[3:] if isinstance(value, bool))
    return _batch_norm(call, training=flag)


@rule(*named("_batch_norm_with_update", "_batch_norm_with_update_functional"), kind="norm")
def _batch_norm_training(call: Call) -> Work:
    return _batch_norm(call, training=True)


@rule(*named("_native_batch_norm_legit_no_training", "_batch_norm_no_update"), kind="norm")
def _batch_norm_inference(call: Call) -> Work:
    return _batch_norm(call, training=False)


@rule(
    *named(
        "native_layer_norm_backward",
        "native_group_norm_backward",
        "native_batch_norm_backward",
        "cudnn_batch_norm_backward",
        "miopen_batch_norm_backward",
        "batch_norm_backward",
        "_fused_rms_norm_backward",
    ),
    kind="norm",
)
def _norm_backward(call: Call) -> Work:
    """Two sums over products, the gradient from both, and the sums for scale and shift: 11 per element."""
    return Work(other_flops=11 * call.inputs[0].numel(), mixed_ops=11 * call.inputs[0].numel())
