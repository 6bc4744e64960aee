"""The workloads that are measured: a forward pass or a training step at any batch size, callable repeatedly."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from favor.machine.precision import Precision
from favor.trace.conditions import Phase
from favor.trace.operator_trace import loss
from favor.trace.optimizer import create_optimizer
from favor.zoo.operating_point import impose_operating_point
from favor.zoo.registry import create_model
from favor.zoo.training import take_extra_losses

SEED = 0


@dataclass(frozen=True)
class Call:
    """One call of a workload, and the tensors that exist before and after it, the images last."""

    run: Callable[[], None]
    held: tuple[Tensor, ...]


class Workload(Protocol):
    """A forward pass or training step at any batch size."""

    def at(self, batch_size: int) -> Call: ...


def build(name: str, phase: Phase, img_size: int, num_classes: int) -> nn.Module:
    """A model with fresh weights, at a fixed operating point if its work depends on the image."""
    torch.manual_seed(SEED)
    model = create_model(name, img_size=img_size, num_classes=num_classes)
    if phase == "inference":
        # An untrained model may do untypical work, such as never halting a token. The point is fixed in eval mode only.
        impose_operating_point(model)
    return model


class Inference:
    """Forward passes in eval mode without gradients, on images that are on the device already."""

    def __init__(self, model: nn.Module, img_size: int, device: torch.device, precision: Precision, compiled: bool):
        self._weights = model.eval().to(device, precision.weights)
        self._model: Callable[[Tensor], object] = compile_model(self._weights) if compiled else self._weights
        self._img_size, self._device, self._precision = img_size, device, precision

    def at(self, batch_size: int) -> Call:
        """A forward pass of a batch."""
        images = random_images(batch_size, self._img_size).to(self._device, self._precision.weights)

        def run() -> None:
            with torch.inference_mode(), self._precision.context(self._device):
                self._model(images)

        return Call(run, (*self._weights.parameters(), *self._weights.buffers(), images))


class Training:
    """Training steps on images that are on the device already: forward, all losses, backward, optimizer."""

    def __init__(
        self,
        model: nn.Module,
        img_size: int,
        device: torch.device,
        precision: Precision,
        compiled: bool,
        optimizer: str,
    ) -> None:
        self._weights = model.train().to(device, precision.weights)
        self._model: Callable[[Tensor], object] = compile_model(self._weights) if compiled else self._weights
        self._optimizer = benchmark_optimizer(optimizer, self._weights.parameters())
        self._scaler = precision.scaler(device)
        self._img_size, self._device, self._precision = img_size, device, precision

    def at(self, batch_size: int) -> Call:
        """A training step on a batch. One step runs right away, so that the optimizer has its state."""
        images = random_images(batch_size, self._img_size).to(self._device, self._precision.weights)

        def run() -> None:
            self.gather_gradients(images)
            self.update()
            self._optimizer.zero_grad(set_to_none=True)

        self._optimizer.zero_grad(set_to_none=True)
        run()
        return Call(run, (*self._weights.parameters(), *self._weights.buffers(), *self._state(), images))

    def update_alone(self, batch_size: int) -> Call:
        """The optimizer's update alone, which gradient accumulation runs once for many batches."""
        call = self.at(batch_size)
        self.gather_gradients(call.held[-1])
        return Call(self.update, call.held)

    def gather_gradients(self, images: Tensor) -> None:
        """Forward pass, all losses, backward pass: the part that gradient accumulation repeats."""
        with self._precision.context(self._device):
            objective = loss(self._model(images), images.shape[0])
            objective = sum(take_extra_losses(self._weights).values(), objective)
        self._scaler.scale(objective).backward()

    def update(self) -> None:
        """The optimizer's update with the present gradients."""
        self._scaler.step(self._optimizer)
        self._scaler.update()

    def _state(self) -> Iterator[Tensor]:
        for state in self._optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, Tensor))


def benchmark_optimizer(name: str, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """An optimizer as the benchmark's recipe sets it; the learning rate is tiny, so that weights stay finite."""
    eps = 1e-7 if name == "lamb" else 1e-8
    return create_optimizer(parameters, name, lr=1e-6, weight_decay=0.02, eps=eps, max_grad_norm=1.0)


def compile_model(model: nn.Module) -> Callable[[Tensor], object]:
    """The model, compiled separately for every input shape."""
    # The search for the best batch tries more batch sizes than PyTorch's default limit.
    torch._dynamo.config.recompile_limit = 64
    return torch.compile(model, dynamic=False)


def random_images(batch_size: int, img_size: int) -> Tensor:
    """Images of independent normal numbers, the same at every call."""
    generator = torch.Generator().manual_seed(SEED)
    return torch.randn(batch_size, 3, img_size, img_size, generator=generator)
