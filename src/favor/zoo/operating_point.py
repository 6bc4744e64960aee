"""Models whose work depends on the image: they say at which point they work, and can be held there.

- Such a model has a dict `operating_point`, which goes onto every record as conditions.
- One that does no typical work with fresh weights also has `impose_operating_point()`: from then on it does, in eval,
  the work that `operating_point` tells, whatever the image. It is called before inference is timed.
"""

from typing import Protocol, runtime_checkable

from torch import nn


@runtime_checkable
class ImposesOperatingPoint(Protocol):
    """A model that can be told to work at its operating point."""

    def impose_operating_point(self) -> None: ...


def operating_point(model: nn.Module) -> dict[str, str | float]:
    """What the model says of how its work depends on the image; empty where it does not."""
    return dict(getattr(model, "operating_point", {}))


def impose_operating_point(model: nn.Module) -> None:
    """Hold a model at its operating point, where its work would otherwise depend on its weights and the image."""
    if isinstance(model, ImposesOperatingPoint):
        model.impose_operating_point()
