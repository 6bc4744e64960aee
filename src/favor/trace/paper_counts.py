"""Parameters and size as the X-formers paper counts them: what a layer-by-layer summary shows."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from favor.trace.operator_trace import Op


def params_paper(model: nn.Module) -> int:
    """Elements of `weight` and `bias` of PyTorch's own modules.

    Bare parameters are missing: a class token, positions, a projection along the sequence, a custom norm.

    >>> params_paper(create_model("vix_vil", num_classes=10))  # doctest: +SKIP
    415754  # of 809,482 in truth
    """
    seen = {
        id(parameter): parameter.numel()
        for module in model.modules()
        if _is_standard(module)
        for parameter in (getattr(module, "weight", None), getattr(module, "bias", None))
        if isinstance(parameter, nn.Parameter)
    }
    return sum(seen.values())


class OutputElements:
    """The number of elements that the modules of a model output, without sequences of modules and the model itself."""

    def __init__(self) -> None:
        self.total = 0

    @contextmanager
    def counted(self, model: nn.Module) -> Iterator[None]:
        """Count inside the context."""
        modules = [module for module in model.modules() if module is not model]
        hooks = [m.register_forward_hook(self._add) for m in modules if not isinstance(m, nn.Sequential)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _add(self, module: nn.Module, inputs: object, output: object) -> None:
        tensors = output if isinstance(output, tuple | list) else (output,)
        self.total += sum(tensor.numel() for tensor in tensors if isinstance(tensor, Tensor))


def model_size_paper(model: nn.Module, images: Tensor, outputs: OutputElements, ops: Iterable[Op]) -> int:
    """Bytes of one image, of the parameters, and twice those of all outputs, in float32.

    The paper's models have a module for the softmax of attention, so the attention weights count as outputs.
    """
    batch_size, *shape = images.shape
    per_image = (outputs.total + _attention_weights(ops)) // batch_size
    return 4 * (torch.Size(shape).numel() + 2 * per_image + params_paper(model))


def _attention_weights(ops: Iterable[Op]) -> int:
    total = 0
    for op in ops:
        if op.phase != "forward":
            continue
        if op.kind == "attention":
            query, key = (spec.shape for spec in op.inputs[:2])
            total += torch.Size(query[:-1]).numel() * key[-2]
        elif "softmax" in op.name and "log_softmax" not in op.name:
            total += torch.Size(op.outputs[0].shape).numel()
    return total


def _is_standard(module: nn.Module) -> bool:
    """Whether a module is one of PyTorch's or inherits from one."""
    return any(
        kind is not nn.Module and kind.__module__.startswith("torch.nn.modules") for kind in type(module).__mro__
    )
