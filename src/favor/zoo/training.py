"""What a model and the loop that trains it say to each other, whatever the architecture.

- A part with a loss term of its own has `extra_losses = ExtraLosses()` and fills it in every training forward pass; the
  loop adds `take_extra_losses(model)` to its objective. Terms are weighted as their paper says.
- A part that changes in the course of training has a method `set_progress(fraction)`; the loop calls `tell_progress`.
- A model with parameters that an optimizer is not to pull towards zero names them in a method `no_weight_decay()`.
"""

from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.layers import LearnedPositions
from favor.zoo.relative_bias import RelativeBias


class ExtraLosses(dict[str, Tensor]):
    """A part's loss terms by name. A copy or a file of the part has none: they belong to the graph of one pass."""

    def __reduce__(self) -> tuple[type["ExtraLosses"], tuple[()]]:
        return ExtraLosses, ()


@runtime_checkable
class HasExtraLosses(Protocol):
    """A part that adds terms to the training objective."""

    extra_losses: dict[str, Tensor]


@runtime_checkable
class FollowsProgress(Protocol):
    """A part that changes from the start (0) to the end (1) of training."""

    def set_progress(self, fraction: float) -> None: ...


def take_extra_losses(model: nn.Module) -> dict[str, Tensor]:
    """The loss terms of the last training forward pass, summed by name over the parts; they are handed out once.

    A part in eval mode has none: what is left there is of a training pass that nobody asked for.
    """
    total: dict[str, Tensor] = {}
    for part in model.modules():
        if isinstance(part, HasExtraLosses):
            for name, value in part.extra_losses.items() if part.training else ():
                total[name] = total[name] + value if name in total else value
            part.extra_losses.clear()  # a kept term would keep its whole graph in memory
    return total


def tell_progress(model: nn.Module, fraction: float) -> None:
    """Tell every part that follows it how far the training is: 0 at the start, 1 at the end."""
    if not 0.0 <= fraction <= 1.0:
        raise RequestError(f"progress is a fraction from 0 to 1, not {fraction}")
    for part in model.modules():
        if isinstance(part, FollowsProgress):
            part.set_progress(fraction)


def tokens_and_places(model: nn.Module) -> set[str]:
    """The names of a model's class tokens, learned positions and relative biases, which are not to be decayed."""
    tokens = {name for name, _ in model.named_parameters() if name.rpartition(".")[2] == "class_token"}
    places = {
        f"{path}.{name}"
        for path, part in model.named_modules()
        if isinstance(part, LearnedPositions | RelativeBias)
        for name, _ in part.named_parameters()
    }
    return tokens | places
