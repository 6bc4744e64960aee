"""Views, copies, factories, random numbers, gathers and scatters: next to no arithmetic, but they cost bytes."""

import torch

from favor.trace.rules.registry import (
    NOTHING,
    Call,
    Work,
    add_rule,
    is_arithmetic,
    named,
    no_traffic,
    no_work,
    read_all_write_all,
    rule,
    tensor_bytes,
    write_only,
)

aten = torch.ops.aten


# Aliases that their schema does not show, some of them in place; the views that it does show need no rule.
add_rule(
    [
        *named("_unsafe_view", "lift_fresh", "lift", "_reshape_alias", "resize", "set"),
        *named("unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk"),
        *named("as_strided", "squeeze", "unsqueeze", "transpose", "t", "detach", "swapaxes", "swapdims"),
    ],
    "view",
    no_work,
    no_traffic,
)

# Values leave the tensor world, or nothing happens at all.
add_rule(
    [
        *named("_local_scalar_dense", "is_nonzero", "sym_size"),
        *named("_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_linalg_check_errors"),
    ],
    "view",
    no_work,
    no_traffic,
)

# ---- copies

_COPIES = """
    clone copy _to_copy cat stack constant_pad_nd repeat repeat_interleave roll flip rot90 im2col one_hot diag_embed
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
    unfold_copy slice_copy view_copy split_with_sizes_copy narrow_copy permute_copy transpose_copy expand_copy
    tril_indices triu_indices block_diag meshgrid cartesian_prod combinations contiguous to_dense _pin_memory
    _unsafe_masked_index
"""
add_rule([copy for copy in named(*_COPIES.split()) if copy is not aten.copy_], "copy", no_work)


def _overwrites(call: Call) -> tuple[int, int]:
    """The first argument is the target: it is written, not read."""
    read, written = read_all_write_all(call)
    return read - tensor_bytes(call.inputs[0]), written


add_rule([aten.copy_], "copy", no_work, _overwrites)

# ---- factories and random numbers

_UNWRITTEN = "empty empty_like empty_strided new_empty new_empty_strided _efficientzerotensor"
_FILLED = """
    zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full fill zero scalar_tensor
    arange linspace logspace eye hann_window hamming_window bartlett_window
"""
_RANDOM = """
    rand randn randint randperm rand_like randn_like randint_like uniform normal normal_functional random exponential
    geometric log_normal cauchy multinomial poisson binomial _standard_gamma
"""
add_rule(named(*_UNWRITTEN.split()), "factory", no_work, no_traffic)
add_rule(named(*_FILLED.split()), "factory", no_work, write_only)
add_rule(named(*_RANDOM.split()), "random", no_work, write_only)
add_rule(named("bernoulli"), "random", no_work)

# ---- gathers and scatters


def _reads_what_it_takes(call: Call) -> tuple[int, int]:
    """As much is read from the table as is returned, and the indices are read."""
    written = sum(map(tensor_bytes, call.outputs))
    return written + sum(map(tensor_bytes, call.inputs[1:])), written


add_rule(
    named("gather", "index", "index_select", "take", "take_along_dim", "embedding", "_unsafe_index", "diagonal_copy"),
    "gather",
    no_work,
    _reads_what_it_takes,
)

# Gradients of views: zeros, with the gradient written into its place.
_VIEW_GRADIENTS = """
    select_backward slice_backward diagonal_backward unfold_backward value_selecting_reduction_backward
    reflection_pad1d_backward reflection_pad2d_backward replication_pad1d_backward replication_pad2d_backward
    select_scatter slice_scatter diagonal_scatter as_strided_scatter
"""
add_rule(named(*_VIEW_GRADIENTS.split()), "copy", no_work)


def _writes_what_it_puts(call: Call) -> tuple[int, int]:
    """In place: indices and values are read, and as much is written as there are values."""
    put = max((tensor_bytes(tensor) for tensor in call.inputs[1:] if tensor.dtype == call.inputs[0].dtype), default=0)
    return sum(map(tensor_bytes, call.inputs[1:])), put


_SCATTERS = "scatter index_put _index_put_impl _unsafe_index_put index_copy index_fill masked_scatter put"
for _name in _SCATTERS.split():
    for _operator in named(_name):
        _in_place = str(_operator).endswith("_")
        add_rule([_operator], "scatter", no_work, _writes_what_it_puts if _in_place else read_all_write_all)

_ADDING_SCATTERS = ("scatter_add", "scatter_reduce", "index_add", "index_reduce")


@rule(*named(*_ADDING_SCATTERS), kind="scatter")
def _adding_scatter(call: Call) -> Work:
    if not is_arithmetic(call):
        return NOTHING
    added = max(tensor.numel() for tensor in call.inputs[1:])
    return Work(other_flops=added, mixed_ops=call.outputs[0].numel())


@rule(*named("embedding_dense_backward", "_embedding_bag_dense_backward", "col2im"), kind="scatter")
def _adding_spread(call: Call) -> Work:
    return Work(other_flops=call.inputs[0].numel())


@rule(*named("_embedding_bag", "_embedding_bag_forward_only"), kind="gather")
def _embedding_bag(call: Call) -> Work:
    weight, indices = call.inputs[:2]
    return Work(other_flops=indices.numel() * weight.shape[-1])
