"""Element-wise operators: a price per output element.

Every elementary function (add, multiply, compare, exp, erf, sqrt, pow ...) is one operation; composed functions are the
sum of their steps as written below. Operators on integers and booleans alone compute indices and masks: no FLOPs.
A complex sum is 2 operations, a complex product 6, a complex quotient 11, other complex functions twice the real ones.
The operators that optimizers have for lists of tensors cost what their elements would one by one, as real numbers.
"""

import torch

from favor.trace.rules.registry import NOTHING, Call, Work, add_rule, elements, is_arithmetic, named, update_lists

aten = torch.ops.aten

# operations per element -> names
_PRICES: dict[int, str] = {
    1: """
        add sub rsub mul div reciprocal neg abs sign sgn square pow sqrt rsqrt
        exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh
        erf erfc erfinv lgamma digamma angle polar hypot ldexp i0 special_i0 special_entr
        relu relu6 clamp clamp_min clamp_max maximum minimum fmax fmin threshold hardtanh nan_to_num
        floor ceil round trunc frac fmod remainder floor_divide copysign heaviside
        eq ne lt le gt ge isnan isinf isfinite isposinf isneginf isclose signbit
        logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_xor bitwise_not
        bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__
        where masked_fill bucketize searchsorted tril triu _conj_physical conj_physical
        threshold_backward hardtanh_backward native_dropout_backward
    """,
    2: "leaky_relu leaky_relu_backward _prelu_kernel addcmul addcdiv native_dropout gcd lerp",
    3: "elu celu selu softplus logaddexp logaddexp2 tanh_backward _prelu_kernel_backward",
    4: "sigmoid sigmoid_backward hardsigmoid log_sigmoid_forward logit elu_backward softplus_backward",
    5: "silu gelu hardswish glu special_ndtr hardsigmoid_backward log_sigmoid_backward",
    6: "mish hardswish_backward logit_backward",
    8: "silu_backward glu_backward glu_jvp",
    11: "gelu_backward mish_backward",
}

# What the benchmark's handles for fvcore count per output element; they know no other element-wise operator.
_MIXED_PRICES: dict[str, int] = {
    **dict.fromkeys(("add", "sub", "rsub", "mul", "div", "reciprocal", "sin", "cos"), 1),
    "pow": 3,
    "gelu": 8,
    "exp": 20,
    "log": 20,
    "sigmoid": 22,
}

_COMPLEX_PRICES: dict[str, int] = {"add": 2, "sub": 2, "rsub": 2, "mul": 6, "div": 11, "reciprocal": 6, "abs": 4}


def _price(name: str, real: int) -> None:
    mixed, complex_price = _MIXED_PRICES.get(name, 0), _COMPLEX_PRICES.get(name, 2 * real)

    def work(call: Call) -> Work:
        if not is_arithmetic(call):
            return NOTHING
        count = call.outputs[0].numel()
        is_complex = any(tensor.dtype.is_complex for tensor in (call.outputs[0], *call.inputs))
        return Work(other_flops=count * (complex_price if is_complex else real), mixed_ops=count * mixed)

    def work_of_list(call: Call) -> Work:
        return Work(other_flops=elements(call.outputs or call.args[0]) * real) if is_arithmetic(call) else NOTHING

    add_rule(named(name), "elementwise", work)
    add_rule(named(f"_foreach_{name}"), "foreach", work_of_list, update_lists)


for _cost, _names in _PRICES.items():
    for _name in _names.split():
        _price(_name, _cost)


def _scaled_by_number(call: Call) -> Work:
    # This overload comes from PyTorch's own attention, taken apart: it scales queries and keys by the root of the scale
    # where the benchmark's networks scale the queries once. A product with a number in Python is `mul.Tensor`.
    count = call.outputs[0].numel()
    return Work(other_flops=count, mixed_ops=count // 2) if is_arithmetic(call) else NOTHING


add_rule([aten.mul.Scalar], "elementwise", _scaled_by_number)


_LOSSES = ["mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"]
add_rule(
    named(*_LOSSES, *(f"{name}_backward" for name in _LOSSES)),
    "elementwise",
    lambda call: Work(other_flops=4 * call.inputs[0].numel()),
)

# One element per row is picked and summed, or written.
add_rule(
    named("nll_loss_forward", "nll_loss2d_forward"), "reduction", lambda call: Work(other_flops=call.inputs[1].numel())
)
add_rule(
    named("nll_loss_backward", "nll_loss2d_backward"), "scatter", lambda call: Work(other_flops=call.inputs[2].numel())
)
