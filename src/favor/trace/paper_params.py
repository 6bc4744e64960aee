"""Parameters as the X-formers paper counts them: those that a layer-by-layer summary shows."""

from torch import nn


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


def _is_standard(module: nn.Module) -> bool:
    """Whether a module is one of PyTorch's or inherits from one."""
    return any(
        kind is not nn.Module and kind.__module__.startswith("torch.nn.modules") for kind in type(module).__mro__
    )
