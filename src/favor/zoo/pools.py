"""What the head sees: what fits the encoder's slot for pooling."""

from dataclasses import dataclass

from torch import Tensor

from favor.zoo.slots import Flow, PerToken


@dataclass(frozen=True)
class ClassTokenPool:
    """The normalized class token."""

    wants_class_token = True

    def __call__(self, x: Tensor, norm: PerToken, flow: Flow) -> Tensor:
        return norm(x[:, 0])


@dataclass(frozen=True)
class MeanPool:
    """The mean of the normalized patches, each weighed by what it stands for; there is no class token."""

    wants_class_token = False

    def __call__(self, x: Tensor, norm: PerToken, flow: Flow) -> Tensor:
        x = norm(x)
        weights = flow.weights()
        return x.mean(dim=1) if weights is None else (weights[:, None].to(x.dtype) @ x).squeeze(1)
