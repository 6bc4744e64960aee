"""What all runtimes have in common: how to run a model, the environment on its record, and how to run a batch.

Neither this nor a session of ONNX Runtime or OpenVINO imports torch before its outputs are tensors, so that the memory
of a session can be measured without PyTorch's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray

from favor.errors import RequestError, WorkError, one_line
from favor.runtime.names import Runtime, check

if TYPE_CHECKING:
    from torch import Tensor

Images: TypeAlias = Union["Tensor", NDArray[np.float32]]
"""A batch of normalized images (B, C, H, W)."""


@dataclass(frozen=True)
class Choice:
    """How a model is to be run; without `threads`, with as many on the CPU as PyTorch has."""

    runtime: str = "eager"
    precision: str = "fp32"
    device: str = "cpu"
    threads: int | None = None

    def check(self) -> Runtime:
        """The runtime, if this combination exists and can run here; refused in one line otherwise."""
        if self.threads is not None and self.threads < 1:
            raise RequestError(f"{self.threads} threads cannot run anything; use 1 or more")
        return check(self.runtime, self.precision, self.device.partition(":")[0])

    @property
    def cpu_threads(self) -> int:
        """The threads on the CPU."""
        if self.threads is not None:
            return self.threads
        import torch

        return torch.get_num_threads()


@dataclass(frozen=True)
class Facts:
    """What a record says of a session.

    `provider` is what computes: an execution provider of ONNX Runtime, a device of OpenVINO, a backend of PyTorch.
    `preparation` are the seconds that opening the file or compiling took.
    """

    provider: str
    versions: Mapping[str, str]
    preparation: float


@dataclass(frozen=True)
class Shapes:
    """The shapes of the images that a file takes and of its outputs; None for any size, empty if it does not say."""

    images: tuple[int | None, ...]
    outputs: tuple[int | None, ...]


class Session(Protocol):
    """A model that is ready to run."""

    facts: Facts

    def run(self, images: Images) -> "Tensor":
        """The outputs as float32, when all is done: on the session's device in PyTorch, on the CPU otherwise."""


def as_array(images: Images) -> NDArray[np.float32]:
    """A batch as runtimes other than PyTorch take it."""
    values = images if isinstance(images, np.ndarray) else images.detach().cpu().numpy()
    return np.ascontiguousarray(values, dtype=np.float32)


def as_logits(outputs: object, images: int) -> NDArray[np.floating]:
    """The outputs of a file, checked to be one row per image: a foreign file may return anything."""
    if isinstance(outputs, np.ndarray) and outputs.dtype.kind == "f" and outputs.ndim == 2 and len(outputs) == images:
        return outputs
    raise WorkError("its output is not a row of numbers for each image; export the model again")


def first_line(error: BaseException) -> str:
    """The first meaningful line of an error; errors of compilers have hundreds of lines."""
    lines = [line.strip() for line in str(error).splitlines()]
    return one_line(RuntimeError(next((line for line in lines if line), type(error).__name__)))
