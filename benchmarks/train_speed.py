"""Training images per second of `favor train` against timm's training script: same model, images, batch, threads.

    FAVOR_DATA=... python benchmarks/train_speed.py [--model vit_xs4] [--batch-size 128] [--rounds 7]

Ours is `favor.training.run.train`, stopped after some steps as a cluster would stop it. timm's loop has the parts that
timm's script uses: `create_loader` with its prefetcher and worker processes, the transforms of `create_transform`,
`create_optimizer_v2`, `dispatch_clip_grad`, its meters. Rounds alternate, so that other work on the machine slows both
down, and the ratio is computed for each pair of rounds. Both use all threads for the model; timm's workers come on top.
The exit code is 1 if the median of the ratios is below 1.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from PIL import Image
from timm.data import create_loader
from timm.optim import create_optimizer_v2
from timm.utils import AverageMeter, dispatch_clip_grad
from torch import Tensor, nn
from torch.utils.data import Dataset

from favor.data.in_memory import InMemory
from favor.data.opening import open_data
from favor.records.schema import Record
from favor.training.callbacks import StepNews
from favor.training.recipe import Recipe, load_recipe
from favor.training.request import TrainingRequest
from favor.training.run import train
from favor.zoo.registry import create_model

IGNORED_STEPS = 3


class Stopwatch:
    """Notes when each step was over, and asks the run to stop after the last."""

    def __init__(self, steps: int) -> None:
        self.steps, self.times = steps, []  # type: ignore[var-annotated]

    def note(self, text: str) -> None:
        """Nothing is shown."""

    def stepped(self, news: StepNews) -> None:
        self.times.append(time.perf_counter())
        if len(self.times) == self.steps:
            os.kill(os.getpid(), signal.SIGTERM)

    def evaluated(self, record: Record, news: StepNews) -> None:
        raise SystemExit("an epoch ended within a round: its evaluation must not be timed; use fewer --steps")


def ours(request: TrainingRequest, steps: int) -> Callable[[], float]:
    """A round of `favor train`; the seconds of a step."""

    def one_round() -> float:
        watch = Stopwatch(steps)
        train(request, watch)
        return (watch.times[-1] - watch.times[IGNORED_STEPS]) / (len(watch.times) - 1 - IGNORED_STEPS)

    return one_round


class AsPictures(Dataset[tuple[Image.Image, int]]):
    """Images as torchvision's CIFAR10, which timm's script uses, hands them out."""

    def __init__(self, source: InMemory) -> None:
        self.images = source.images.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels = source.labels
        self.transform: Callable[[Image.Image], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, k: int) -> tuple[object, int]:  # type: ignore[override]
        image = Image.fromarray(self.images[k])
        return self.transform(image) if self.transform else image, int(self.labels[k])


def theirs(model: nn.Module, source: InMemory, recipe: Recipe, steps: int, workers: int) -> Callable[[], float]:
    """A round of timm's training script; the seconds of a step."""
    loader = create_loader(
        AsPictures(source),
        input_size=(3, recipe.img_size, recipe.img_size),
        batch_size=recipe.batch_size,
        is_training=True,
        train_crop_mode="rkrc",
        hflip=recipe.flip,
        color_jitter=None,
        interpolation="bicubic",
        mean=recipe.mean,
        std=recipe.std,
        num_workers=workers,
        pin_memory=False,
        device=torch.device("cpu"),
    )
    optimizer = create_optimizer_v2(model, opt=recipe.optimizer, lr=recipe.lr, weight_decay=recipe.weight_decay)
    loss_function, losses = nn.CrossEntropyLoss(), AverageMeter()

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from loader

    stream = batches()

    def one_round() -> float:
        model.train()
        times = []
        for _ in range(steps):
            images, labels = next(stream)
            loss = loss_function(model(images), labels)
            loss.backward()
            if recipe.clip_grad is not None:
                dispatch_clip_grad(model.parameters(), recipe.clip_grad)
            optimizer.step()
            optimizer.zero_grad()
            losses.update(loss.item(), images.size(0))
            times.append(time.perf_counter())
        return (times[-1] - times[IGNORED_STEPS]) / (len(times) - 1 - IGNORED_STEPS)

    return one_round


def main() -> int:
    """Print the speeds; the exit code says whether ours is at least as fast."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="vit_xs4")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=25, help="of a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2, help="processes of timm's loader")
    arguments = parser.parse_args()
    recipe = load_recipe("laptop-cifar10", [f"batch_size={arguments.batch_size}", f"data={arguments.data}"])
    data = open_data(arguments.data)
    if not isinstance(data.train, InMemory):
        raise SystemExit(f"{arguments.data} is not decoded in memory; choose cifar10")
    torch.manual_seed(0)
    model = create_model(arguments.model, num_classes=data.num_classes, img_size=recipe.img_size)
    with tempfile.TemporaryDirectory() as folder:
        request = TrainingRequest(arguments.model, recipe, arguments.data, Path(folder), resume=True, device="cpu")
        run_ours = ours(request, arguments.steps)
        run_theirs = theirs(model, data.train, recipe, arguments.steps, arguments.workers)
        run_ours(), run_theirs()  # the first rounds allocate, start workers and find out what a step costs
        pairs = [(run_ours(), run_theirs()) for _ in range(arguments.rounds)]
    images = arguments.batch_size
    for name, side in (("favor", 0), ("timm", 1)):
        print(f"{name:<6} {images / statistics.median(pair[side] for pair in pairs):>8,.0f} img/s")
    ratios = sorted(them / us for us, them in pairs)
    median = statistics.median(ratios)
    print(f"ratio  {median:>8.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f} of {len(ratios)} pairs)")
    print(
        f"{arguments.model}, batch {images}, {torch.get_num_threads()} threads, {arguments.workers} workers of timm's"
    )
    return 0 if median >= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
