"""What is measured: a model's forward pass or training step at any batch size, ready to be called again and again."""

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
    """One call of the work, and the tensors that are there before and after it, the images last."""

    run: Callable[[], None]
    held: tuple[Tensor, ...]


class Workload(Protocol):
    """Work that can be done at any batch size."""

    def at(self, batch_size: int) -> Call: ...


def build(name: str, phase: Phase, img_size: int, num_classes: int) -> nn.Module:
    """A model with fresh weights, at the operating point that it is timed at where its work depends on the image."""
    torch.manual_seed(SEED)
    model = create_model(name, img_size=img_size, num_classes=num_classes)
    if phase == "inference":
        # Fresh weights may do no typical work, as a model that halts no token yet. It is imposed in eval only.
        impose_operating_point(model)
    return model


class Inference:
    """Forward passes in eval mode without gradients, on images that are on the device already."""

    def __init__(self, model: nn.Module, img_size: int, place: torch.device, precision: Precision, compiled: bool):
        self._weights = model.eval().to(place, precision.weights)
        self._model: Callable[[Tensor], object] = compile_model(self._weights) if compiled else self._weights
        self._img_size, self._place, self._precision = img_size, place, precision

    def at(self, batch_size: int) -> Call:
        """A forward pass of so many images."""
        images = random_images(batch_size, self._img_size).to(self._place, self._precision.weights)

        def run() -> None:
            with torch.inference_mode(), self._precision.context(self._place):
                self._model(images)

        return Call(run, (*self._weights.parameters(), *self._weights.buffers(), images))


class Training:
    """Training steps on images that are on the device already: forward, all losses, backward, optimizer."""

    def __init__(
        self,
        model: nn.Module,
        img_size: int,
        place: torch.device,
        precision: Precision,
        compiled: bool,
        optimizer: str,
    ) -> None:
        self._weights = model.train().to(place, precision.weights)
        self._model: Callable[[Tensor], object] = compile_model(self._weights) if compiled else self._weights
        self._optimizer = benchmark_optimizer(optimizer, self._weights.parameters())
        self._scaler = precision.scaler(place)
        self._img_size, self._place, self._precision = img_size, place, precision

    def at(self, batch_size: int) -> Call:
        """A whole training step of so many images. One is done here: the optimizer makes its state in the first."""
        images = random_images(batch_size, self._img_size).to(self._place, self._precision.weights)

        def run() -> None:
            self.gather_gradients(images)
            self.update()
            self._optimizer.zero_grad(set_to_none=True)

        self._optimizer.zero_grad(set_to_none=True)
        run()
        return Call(run, (*self._weights.parameters(), *self._weights.buffers(), *self._state(), images))

    def update_alone(self, batch_size: int) -> Call:
        """The optimizer's part of a step alone: what accumulation does once for many batches."""
        call = self.at(batch_size)
        self.gather_gradients(call.held[-1])
        return Call(self.update, call.held)

    def gather_gradients(self, images: Tensor) -> None:
        """Forward pass, all losses, backward pass: what accumulation repeats."""
        with self._precision.context(self._place):
            objective = loss(self._model(images), images.shape[0])
            objective = sum(take_extra_losses(self._weights).values(), objective)
        self._scaler.scale(objective).backward()

    def update(self) -> None:
        """The optimizer's step with the gradients that are there."""
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
    """The model compiled for the shapes that it will see, each on its own."""
    # The search tries more batch sizes than PyTorch compiles one function for unless told.
    torch._dynamo.config.recompile_limit = 64
    return torch.compile(model, dynamic=False)


def random_images(batch_size: int, img_size: int) -> Tensor:
    """Images of independent normal numbers, the same ones every time."""
    generator = torch.Generator().manual_seed(SEED)
    return torch.randn(batch_size, 3, img_size, img_size, generator=generator)
