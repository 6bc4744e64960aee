"""Exact top-1, top-5 and loss: each image once, weighted by images, over all processes together."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from favor.data.augment import Batch
from favor.errors import WorkError
from favor.machine.precision import Precision
from favor.training.distributed import Processes


@dataclass(frozen=True)
class Scores:
    """Shares of images in percent, and the mean cross entropy in nats."""

    top1: float
    top5: float
    loss: float
    images: int


class EvaluationStopped(Exception):  # noqa: N818 - not an error
    """The run was asked to stop; the evaluation has to be repeated."""


def evaluate(
    model: nn.Module,
    batches: Iterable[Batch],
    precision: Precision,
    processes: Processes,
    should_stop: Callable[[], bool] = lambda: False,
) -> Scores:
    """Score a model in eval mode; it is left in that mode."""
    model.eval()
    device = next(model.parameters()).device

    def run(images: Tensor) -> Tensor:
        with precision.context(device):
            return model(images).float()

    return score(run, batches, device, processes, should_stop)


def score(
    run: Callable[[Tensor], Tensor],
    batches: Iterable[Batch],
    device: torch.device,
    processes: Processes,
    should_stop: Callable[[], bool] = lambda: False,
) -> Scores:
    """Score what gives the logits of a batch."""
    counts = torch.zeros(3, dtype=torch.float64, device=device)
    images, stopped = 0, False
    with torch.inference_mode():
        for batch in batches:
            stopped = should_stop()
            if stopped:
                break
            counts += scored(run(batch.images), batch.labels)
            images += len(batch)
    # All processes learn of it here, since all of them reach this line.
    first, five, loss, total, stops = processes.sums([*counts.tolist(), images, float(stopped)])
    if stops:
        raise EvaluationStopped
    if not total:
        raise WorkError("no image to evaluate on could be read")
    return Scores(100.0 * first / total, 100.0 * five / total, loss / total, int(total))


def scored(logits: Tensor, labels: Tensor) -> Tensor:
    """The number of top-1 and top-5 hits and the summed cross entropy, as float64.

    >>> scored(torch.eye(6) * 9, torch.tensor([0, 1, 2, 3, 4, 0]))[:2].tolist()
    [5.0, 6.0]
    """
    # Among equal logits, which are common in bfloat16, the first class counts as the prediction; NaN ranks above all
    # others.
    own = logits.gather(1, labels[:, None])
    classes = torch.arange(logits.shape[1], device=logits.device)
    ahead = (~(logits <= own)).sum(1) + ((logits == own) & (classes < labels[:, None])).sum(1)
    loss = F.cross_entropy(logits, labels, reduction="sum")
    correct = torch.stack([(ahead < k).sum() for k in (1, 5)])
    return torch.cat([correct.double(), loss.double()[None]])
