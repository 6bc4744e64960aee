"""At which rates a model drops its branches."""

from torch import nn


def rates(model: nn.Module) -> list[float]:
    """The rate of every drop path in the order of the network, ours (`rate`) and timm's (`drop_prob`)."""
    drops = [module for module in model.modules() if type(module).__name__ == "DropPath"]
    return [float(getattr(module, "rate", None) or getattr(module, "drop_prob", None) or 0.0) for module in drops]
