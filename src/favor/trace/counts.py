"""Counts: parameters, multiply-adds, FLOPs, activations and bytes of a model, from its trace on meta tensors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

import torch
from torch import Tensor, nn

from favor.errors import RequestError
from favor.trace.attention import attention_implementation
from favor.trace.conditions import check_batch_size
from favor.trace.fake_device import on_meta
from favor.trace.meta_shortcuts import SkipInitialization
from favor.trace.operator_trace import Op, trace
from favor.trace.paper_counts import OutputElements, model_size_paper, params_paper
from favor.trace.rules import Kind
from favor.zoo.operating_point import operating_point
from favor.zoo.registry import card, create_model


@dataclass(frozen=True)
class OperatorCount:
    """All calls of one operator in one phase; work and bytes are for the whole batch."""

    operator: str
    kind: Kind
    phase: str
    calls: int
    macs_matmul: int
    flops: int
    activations: int
    bytes_moved: int


@dataclass(frozen=True)
class Counts:
    """The counts of a model; work, activations and bytes are per image, rounded.

    Where the work depends on the image, `operating_point` states the assumption.
    """

    name: str
    img_size: tuple[int, int]
    num_classes: int | None
    batch_size: int
    training: bool
    operating_point: Mapping[str, str | float]
    params: int
    params_trainable: int
    params_paper: int
    model_size_paper: int
    weight_bytes: int
    macs_matmul: int
    macs: int
    flops: int
    ops_mixed: int
    activations: int
    bytes_moved: int
    by_operator: tuple[OperatorCount, ...]

    def _repr_html_(self) -> str:
        """In a notebook: the counts, one a row."""
        rows = "".join(f"<tr><td>{name}</td><td>{getattr(self, name):,}</td></tr>" for name in METRIC_NAMES)
        return f"<p>{escape(self.name)}, {self.img_size[0]} x {self.img_size[1]} px</p><table>{rows}</table>"


METRIC_NAMES = (
    "params",
    "params_trainable",
    "params_paper",
    "model_size_paper",
    "weight_bytes",
    "macs_matmul",
    "macs",
    "flops",
    "ops_mixed",
    "activations",
    "bytes_moved",
)


def count(
    model: str | nn.Module,
    *,
    img_size: int | tuple[int, int] | None = None,
    num_classes: int | None = None,
    in_chans: int = 3,
    batch_size: int = 1,
    training: bool = False,
    attention: str = "fused",
) -> Counts:
    """Count a model of the zoo by name, or a network of your own, without allocating a weight.

    By name, image size and classes default to those of the model. Your own network is copied to the meta device and
    counted for images of `img_size` (default: 224 px).

    >>> count("vit_s16").macs_matmul
    4598882304
    """
    check_batch_size(batch_size)
    if isinstance(model, str):
        model_card = card(model)
        name, sides = model_card.name, _sides(model_card.image_sizes.default if img_size is None else img_size)
        classes = 1000 if num_classes is None else num_classes
        with torch.device("meta"), SkipInitialization():
            network = create_model(model, num_classes=classes, img_size=sides, in_chans=in_chans)
    else:
        if num_classes is not None:
            raise RequestError("num_classes is for models by name; a network of your own has its classes already")
        name, classes, sides = type(model).__name__, None, _sides(224 if img_size is None else img_size)
        network = on_meta(model)
    images = torch.empty(batch_size, in_chans, *sides, device="meta")
    outputs = OutputElements()
    with attention_implementation(attention), outputs.counted(network):
        recorded = trace(network, images, training=training, subject=name)
    return Counts(
        name=name,
        img_size=sides,
        num_classes=classes,
        batch_size=batch_size,
        training=training,
        operating_point=operating_point(network),
        **weights(network),
        model_size_paper=model_size_paper(network, images, outputs, recorded.ops),
        **per_image(recorded.ops, batch_size),
        by_operator=by_operator(recorded.ops),
    )


def _sides(img_size: int | tuple[int, int]) -> tuple[int, int]:
    return (img_size, img_size) if isinstance(img_size, int) else img_size


def weights(model: nn.Module) -> dict[str, int]:
    """Parameters and bytes of a model; a shared tensor counts once."""
    parameters = list(model.parameters())
    buffers = {id(buffer): buffer for module in model.modules() for buffer in _persistent_buffers(module)}
    return {
        "params": _elements(parameters),
        "params_trainable": _elements(parameter for parameter in parameters if parameter.requires_grad),
        "params_paper": params_paper(model),
        "weight_bytes": sum(t.numel() * t.element_size() for t in (*parameters, *buffers.values())),
    }


def _persistent_buffers(module: nn.Module) -> list[Tensor]:
    names = module._buffers.keys() - module._non_persistent_buffers_set
    return [buffer for name in names if (buffer := module._buffers[name]) is not None]


def _elements(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def per_image(ops: Iterable[Op], batch_size: int) -> dict[str, int]:
    """The counts of a trace per image."""
    macs = fft = other = mixed = activations = moved = 0
    for op in ops:
        work = op.work
        macs += work.macs_matmul
        fft += work.fft_flops
        other += work.other_flops
        mixed += work.mixed_ops
        activations += work.activations
        moved += op.bytes_read + op.bytes_written
    totals = {
        "macs_matmul": macs,
        "macs": macs + fft / 2,
        "flops": 2 * macs + fft + other,
        "ops_mixed": macs + mixed,
        "activations": activations,
        "bytes_moved": moved,
    }
    return {name: round(total / batch_size) for name, total in totals.items()}


def by_operator(ops: Iterable[Op]) -> tuple[OperatorCount, ...]:
    """The operators of a trace by phase, most FLOPs first."""
    groups: dict[tuple[str, str], list[Op]] = {}
    for op in ops:
        groups.setdefault((op.phase, op.name), []).append(op)
    counts = [
        OperatorCount(
            operator=name,
            kind=calls[0].kind,
            phase=phase,
            calls=len(calls),
            macs_matmul=sum(op.work.macs_matmul for op in calls),
            flops=sum(op.work.flops for op in calls),
            activations=sum(op.work.activations for op in calls),
            bytes_moved=sum(op.bytes_read + op.bytes_written for op in calls),
        )
        for (phase, name), calls in groups.items()
    ]
    return tuple(sorted(counts, key=lambda count: (-count.flops, -count.bytes_moved, count.operator)))
