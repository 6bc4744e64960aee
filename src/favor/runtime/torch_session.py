"""PyTorch itself: eager mode, and `torch.compile`."""

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from favor.errors import WorkError
from favor.machine.device import find_device
from favor.machine.precision import Precision
from favor.runtime.names import versions
from favor.runtime.session import Choice, Facts, Images, first_line
from favor.trace.workload import compile_model
from favor.zoo.fuse import fuse


class TorchSession:
    """A model in its inference form. A compiled one has compiled for the shape of `images` when it is returned."""

    def __init__(self, model: nn.Module, images: Images, choice: Choice) -> None:
        runtime = choice.check()
        self._device = find_device(choice.device)
        if choice.threads is not None:
            torch.set_num_threads(choice.threads)
        self._precision = Precision.named(choice.precision, self._device.kind)
        weights = fuse(model).to(self._device.torch_device, self._precision.weights)
        compiled = choice.runtime == "compile"
        self._forward: Callable[[Tensor], object] = compile_model(weights) if compiled else weights
        started = time.perf_counter()
        try:
            self.run(images)
        except torch._dynamo.exc.TorchDynamoException as error:
            raise WorkError(f"torch.compile: {first_line(error)}") from error
        provider = f"inductor {self._device.label}" if compiled else self._device.label
        self.facts = Facts(provider, versions(runtime), time.perf_counter() - started)

    def run(self, images: Images) -> Tensor:
        device = self._device.torch_device
        with torch.inference_mode(), self._precision.context(device):
            outputs = self._forward(torch.as_tensor(images).to(device, self._precision.weights))
        self._device.synchronize()
        if not isinstance(outputs, Tensor):
            raise WorkError(f"the model returns a {type(outputs).__name__}, not one tensor of outputs")
        return outputs.float()
