"""The speed of favor's loader compared with the usual one: PIL, image by image, torchvision's transforms, DataLoader.

Run: FAVOR_DATA=... python benchmarks/loader_speed.py [--data cifar10]
The usual loader gets two worker processes, favor one thread, so that on two cores it leaves one to the model.
Runs alternate, so that other load slows both, and the ratio is taken within each pair. Processor time
(of all processes) is printed beside wall time, since it depends less on other load. The limit of 3 is for
wall time.
"""

import argparse
import gc
import resource
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from favor.data.augment import IMAGENET_MEAN, IMAGENET_STD, Augmentation, Normalization
from favor.data.broken import BrokenImages
from favor.data.framing import Framing
from favor.data.in_memory import InMemory
from favor.data.loader import BatchPlan, TrainingLoader
from favor.data.opening import open_data

WORKERS, BATCH, LEAST_RATIO = 2, 128, 3.0


class UsualDataset(Dataset[tuple[torch.Tensor, int]]):
    """Like torchvision's CIFAR10: an array, a PIL image from it, and the transforms."""

    def __init__(self, source: InMemory, transform: Callable[[Image.Image], torch.Tensor]) -> None:
        self.images = source.images.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels, self.transform = source.labels, transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.images[k])), int(self.labels[k])


def blur(image: Image.Image) -> Image.Image:
    """The blur of the benchmark's code."""
    return image.filter(ImageFilter.GaussianBlur(radius=np.random.uniform(0.2, 2.0)))


def usual_transform(three_augment: bool) -> transforms.Compose:
    """Crop and flip, or the pipeline of DeiT III without CutMix, which mixes two images."""
    steps = [transforms.RandomCrop(32, padding=4, padding_mode="reflect"), transforms.RandomHorizontalFlip()]
    if three_augment:
        choice = [transforms.Grayscale(3), transforms.RandomSolarize(128, p=1.0), transforms.Lambda(blur)]
        steps += [transforms.RandomChoice(choice), transforms.ColorJitter(0.3, 0.3, 0.3)]
    return transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)])


def usual_epoch(source: InMemory, three_augment: bool) -> None:
    """One pass with worker processes."""
    data = UsualDataset(source, usual_transform(three_augment))
    for _ in DataLoader(data, BATCH, shuffle=True, num_workers=WORKERS, drop_last=True):
        pass


def favor_epoch(source: InMemory, three_augment: bool) -> None:
    """One pass of the training loader."""
    third = 1 / 3 if three_augment else 0.0
    augmentation = Augmentation(0.5, third, third, third, color_jitter=0.3 if three_augment else 0.0)
    plan = BatchPlan(len(source), BATCH)
    parts = (Framing(32, padding=4), augmentation, Normalization())
    for _ in TrainingLoader(source, plan, *parts, seed=0, broken=BrokenImages()).epoch(0):
        pass


def timed(epoch: Callable[[InMemory, bool], None], source: InMemory, three_augment: bool) -> tuple[float, float]:
    """Images per second of wall time, and per second of processor time of this process and its workers."""
    start, used = time.perf_counter(), processor_seconds()
    epoch(source, three_augment)
    wall = time.perf_counter() - start
    gc.collect()  # workers are waited for, and their time counted, when the loader goes
    return len(source) / wall, len(source) / (processor_seconds() - used)


def processor_seconds() -> float:
    """User and system time of this process and its ended children."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def main() -> int:
    """Print the speeds; the exit code says whether the smaller of the two ratios meets the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--images", type=int, default=10_000, help="how many of the training images")
    parser.add_argument("--pairs", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    whole = open_data(arguments.data).train
    if not isinstance(whole, InMemory):
        raise SystemExit(f"{arguments.data} is not decoded in memory; choose cifar10")
    source = InMemory(whole.images[: arguments.images].clone(), whole.labels[: arguments.images])
    print(
        f"{'augmentation':<16} {'loader':<6} {'img/s':>8} {'img per CPU s':>14}   (medians of {arguments.pairs} pairs)"
    )
    kept = True
    for name, three_augment in (("crop, flip", False), ("3-Augment", True)):
        favor_epoch(source, three_augment)
        pairs = [
            (timed(usual_epoch, source, three_augment), timed(favor_epoch, source, three_augment))
            for _ in range(arguments.pairs)
        ]
        for side, loader in enumerate(("usual", "favor")):
            wall, cpu = (statistics.median(pair[side][kind] for pair in pairs) for kind in (0, 1))
            print(f"{name:<16} {loader:<6} {wall:>8,.0f} {cpu:>14,.0f}")
        ratios = [sorted(ours[kind] / usual[kind] for usual, ours in pairs) for kind in (0, 1)]
        for kind, values in zip(("img/s", "img per CPU s"), ratios, strict=True):
            print(f"{'':<16} ratio of {kind}: {statistics.median(values):.1f} ({values[0]:.1f} to {values[-1]:.1f})")
        kept &= statistics.median(ratios[0]) >= LEAST_RATIO
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
