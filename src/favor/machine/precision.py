"""Precisions by name: the dtype of the weights, and the dtype of autocast. Torch is imported only when needed."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from favor.errors import unknown_name

if TYPE_CHECKING:
    import torch

PRECISIONS = ("fp32", "bf16", "amp", "amp-fp16", "amp-bf16")


def resolve_precision(name: str, device_kind: str) -> str:
    """The precision on records: `amp` is the autocast default of the device, float16 on GPUs and bfloat16 on CPUs.

    >>> resolve_precision("amp", "cuda"), resolve_precision("amp", "cpu"), resolve_precision("fp32", "cpu")
    ('amp-fp16', 'amp-bf16', 'fp32')
    """
    if name not in PRECISIONS:
        raise unknown_name("precision", name, PRECISIONS, "choose from " + ", ".join(PRECISIONS))
    if name != "amp":
        return name
    return "amp-bf16" if device_kind == "cpu" else "amp-fp16"


@dataclass(frozen=True)
class Precision:
    """The dtype of weights and images, and the dtype of matrix products under autocast (None: no autocast)."""

    weights: "torch.dtype"
    autocast: "torch.dtype | None" = None

    @classmethod
    def named(cls, name: str, device_kind: str) -> "Precision":
        """The precision of this name on a kind of device."""
        import torch

        match resolve_precision(name, device_kind):
            case "fp32":
                return cls(torch.float32)
            case "bf16":
                return cls(torch.bfloat16)
            case "amp-fp16":
                return cls(torch.float32, torch.float16)
            case _:
                return cls(torch.float32, torch.bfloat16)

    def context(self, place: "torch.device") -> AbstractContextManager[object]:
        """The context of a forward pass."""
        import torch

        return nullcontext() if self.autocast is None else torch.autocast(place.type, self.autocast)

    def scaler(self, place: "torch.device") -> "torch.amp.GradScaler":
        """A gradient scaler, active for float16 only, where small gradients would underflow."""
        import torch

        return torch.amp.GradScaler(place.type, enabled=self.autocast is torch.float16)
