"""Precisions by name: the dtype of the weights, and the dtype of autocast. Torch is imported only when needed."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from favor.errors import unknown_name
from favor.runtime.names import PRECISIONS

if TYPE_CHECKING:
    import torch


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


def training_precision(name: str, device_kind: str) -> str:
    """The precision in which a recipe is run: `amp` is fp32 on a CPU without bfloat16 instructions.

    There, autocast emulates bfloat16, and a step takes about ten times as long.
    """
    emulated = name == "amp" and device_kind == "cpu" and not has_bf16_instructions()
    return resolve_precision("fp32" if emulated else name, device_kind)


def has_bf16_instructions() -> bool:
    """Whether this CPU multiplies bfloat16 itself, as far as PyTorch knows (before 2.11 it knows of none)."""
    import torch

    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(known is True for name, known in capabilities.items() if "bf16" in name)


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

    def context(self, device: "torch.device") -> AbstractContextManager[object]:
        """The context of a forward pass."""
        import torch

        return nullcontext() if self.autocast is None else torch.autocast(device.type, self.autocast)

    def scaler(self, device: "torch.device") -> "torch.amp.GradScaler":
        """A gradient scaler, active for float16 only, where small gradients would underflow."""
        import torch

        return torch.amp.GradScaler(device.type, enabled=self.autocast is torch.float16)
