"""Images per second of favor's loader against torchvision's: same images, crops, augmentations and workers.

    FAVOR_DATA=... python benchmarks/loader_speed.py                    # JPEGs: imagenet-1k as it is, and upscaled
    FAVOR_DATA=... python benchmarks/loader_speed.py --data cifar10     # images in memory

JPEGs come from a folder and from shards. torchvision gets a `DataLoader` with v2 transforms, once with
`torchvision.io.decode_jpeg` and tensors, once with Pillow's images. Beside them: bare decoding by libjpeg-turbo of
bytes in memory, and what favor leaves to the processor if a GPU augments. The sample of ImageNet at hand has 160 px, so
larger JPEGs are made from it: with a longer side of 500 px, as most of ImageNet has, and with a shorter side of 500 px,
as in Flowers-102, where the crop of 224 px allows to decode at half of the scale.

Runs alternate, so that other load slows all, and ratios are taken within a round. Processor time (of all processes)
depends least on other load. Exits with 1 where favor is slower than the faster of torchvision's loaders by processor
time, or less than three times as fast with images in memory by wall time.
"""

import argparse
import gc
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import simplejpeg
import torch
from PIL import Image, ImageFilter
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2

from favor.data.augment import IMAGENET_MEAN, IMAGENET_STD, Augmentation, Normalization
from favor.data.broken import BrokenImages
from favor.data.framing import Framing, random_cut
from favor.data.image_files import ImageFiles
from favor.data.in_memory import InMemory
from favor.data.loader import BatchPlan, TrainingLoader
from favor.data.opening import open_data
from favor.data.shard_writing import write_shards
from favor.data.sources import ImageSource

Epoch = Callable[[], None]
LEAST_RATIO_IN_MEMORY = 3.0
TENSORS, PILLOW = "torchvision, tensors", "torchvision, Pillow"


def main() -> int:
    """Print the speeds; the exit code says whether the limits are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="imagenet-1k")
    parser.add_argument("--images", type=int, default=512, help="how many of the training images")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    whole = open_data(asked.data).train
    if isinstance(whole, InMemory):
        return in_memory(InMemory(whole.images[: asked.images].clone(), whole.labels[: asked.images]), asked)
    if not isinstance(whole, ImageFiles):
        raise SystemExit(f"{asked.data} is neither in files nor in memory")
    with tempfile.TemporaryDirectory() as folder:
        kept = [
            from_files(upscaled(whole, asked.images, Path(folder) / name, change), name, img_size, asked)
            for name, change, img_size in (
                ("as they are", lambda width, height: 1.0, 160),
                ("longer side 500", lambda width, height: 500 / max(width, height), 224),
                ("shorter side 500", lambda width, height: 500 / min(width, height), 224),
            )
        ]
    return 0 if all(kept) else 1


def compare(title: str, loaders: Mapping[str, Epoch], images: int, asked: argparse.Namespace) -> dict[str, list[float]]:
    """Run the loaders in turns; images per second of processor time of each, round by round."""
    rounds = [{name: timed(epoch, images) for name, epoch in loaders.items()} for _ in range(asked.rounds)]
    print(f"\n{title}: medians of {asked.rounds} rounds with {images} images, {asked.workers} workers")
    print(f"{'':<28} {'img/s':>8} {'img per core second':>20} {'ratio to the first':>24}")
    first = next(iter(loaders))
    for name in loaders:
        wall, cpu = (statistics.median(done[name][kind] for done in rounds) for kind in (0, 1))
        ratios = sorted(done[name][1] / done[first][1] for done in rounds)
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{name:<28} {wall:>8,.0f} {cpu:>20,.0f} {ratio:>24}", flush=True)
    return {name: [done[name][1] for done in rounds] for name in loaders}


def timed(epoch: Epoch, images: int) -> tuple[float, float]:
    """Images per second of wall time, and per second of processor time of this process and its workers."""
    gc.collect()
    start, used = time.perf_counter(), processor_seconds()
    epoch()
    wall = time.perf_counter() - start
    if multiprocessing.active_children():
        raise RuntimeError("workers are still there, so that their time is not counted yet")
    return images / wall, images / (processor_seconds() - used)


def processor_seconds() -> float:
    """User and system time of this process and its ended children."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def upscaled(whole: ImageFiles, count: int, folder: Path, change: Callable[[int, int], float]) -> Path:
    """Some of the images as JPEGs in a folder, resized by a factor."""
    for sample in range(min(count, len(whole))):
        file = folder / "train" / f"{sample % 2}" / f"{sample}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(whole.places.read(sample))
        with Image.open(file) as image:
            factor = change(*image.size)
            if factor != 1.0:
                size = tuple(round(side * factor) for side in image.size)
                image.convert("RGB").resize(size, Image.Resampling.BICUBIC).save(file, quality=95, subsampling="4:2:0")
    for label in "01":
        (folder / "val" / label).mkdir(parents=True)
        (folder / "val" / label / "0.jpg").write_bytes(whole.places.read(0))
    return folder


def from_files(folder: Path, name: str, img_size: int, asked: argparse.Namespace) -> bool:
    """Compare the loaders on a folder; whether favor is at least as fast as torchvision."""
    write_shards(open_data(f"folder:{folder}"), "folder", folder / "shards", 2**23, BrokenImages(), lambda _: None)
    plain, shards = (open_data(f"folder:{place}").train for place in (folder, folder / "shards"))
    if not isinstance(plain, ImageFiles) or not isinstance(shards, ImageFiles):
        raise TypeError("images were expected in files")
    files = [plain.places.name(sample) for sample in range(len(plain))]
    kept = True
    for augmentation, three in (("crop, flip", False), ("3-Augment", True)):
        loaders: dict[str, Epoch] = {
            TENSORS: torchvision_epoch(Files(files, read_tensor, v2_transform(img_size, three, blur_tensor())), asked),
            PILLOW: torchvision_epoch(Files(files, read_pillow, v2_transform(img_size, three, blur_pillow)), asked),
            "favor, folder": favor_epoch(plain, Framing(img_size, padding=4), three, asked, asked.workers),
            "favor, shards": favor_epoch(shards, Framing(img_size, padding=4), three, asked, asked.workers),
        }
        if not three:
            loaders["favor, crops for a GPU"] = crops_epoch(shards, Framing(img_size, padding=4), asked)
            loaders["limit: bare libjpeg-turbo"] = decoding_epoch(files)
        speeds = compare(f"JPEGs, {name}, crop of {img_size} px, {augmentation}", loaders, len(plain), asked)
        for ours in ("favor, folder", "favor, shards"):
            ratios = [f / max(t, p) for f, t, p in zip(speeds[ours], speeds[TENSORS], speeds[PILLOW], strict=True)]
            kept &= statistics.median(ratios) >= 1
    return kept


class Files(Dataset[tuple[torch.Tensor, int]]):
    """Like torchvision's ImageFolder."""

    def __init__(self, files: list[str], read: Callable[[str], object], transform: v2.Compose) -> None:
        self.files, self.read, self.transform = files, read, transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.read(self.files[k])), k % 2


def read_tensor(file: str) -> torch.Tensor:
    return decode_jpeg(torch.frombuffer(bytearray(Path(file).read_bytes()), dtype=torch.uint8), ImageReadMode.RGB)


def read_pillow(file: str) -> Image.Image:
    with Image.open(file) as image:
        return image.convert("RGB")


def blur_pillow(image: Image.Image) -> Image.Image:
    """The blur of the benchmark's code."""
    return image.filter(ImageFilter.GaussianBlur(radius=np.random.uniform(0.2, 2.0)))


def blur_tensor() -> v2.Transform:
    """Three of the largest sigma in each direction."""
    return v2.GaussianBlur(13, (0.2, 2.0))


def v2_transform(img_size: int, three_augment: bool, blur: Callable[[object], object]) -> v2.Compose:
    """Crop and flip, or the pipeline of DeiT III without CutMix, which mixes two images."""
    steps: list[object] = [
        v2.Resize(img_size, v2.InterpolationMode.BICUBIC, antialias=True),
        v2.RandomCrop(img_size, padding=4, padding_mode="reflect"),
        v2.RandomHorizontalFlip(),
    ]
    if three_augment:
        blurs = blur if isinstance(blur, v2.Transform) else v2.Lambda(blur)
        steps += [v2.RandomChoice([v2.Grayscale(3), v2.RandomSolarize(128, p=1.0), blurs])]
        steps += [v2.ColorJitter(0.3, 0.3, 0.3)]
    steps += [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    return v2.Compose(steps)


def torchvision_epoch(data: Dataset[tuple[torch.Tensor, int]], asked: argparse.Namespace) -> Epoch:
    """One pass of torch's `DataLoader`."""

    def epoch() -> None:
        for _ in DataLoader(data, asked.batch_size, shuffle=True, num_workers=asked.workers):
            pass

    return epoch


def favor_epoch(
    source: ImageSource, framing: Framing, three_augment: bool, asked: argparse.Namespace, workers: int
) -> Epoch:
    """One pass of the training loader."""
    third = 1 / 3 if three_augment else 0.0
    augmentation = Augmentation(0.5, third, third, third, color_jitter=0.3 if three_augment else 0.0)
    plan = BatchPlan(len(source), min(asked.batch_size, len(source)))
    parts = (source, plan, framing, augmentation, Normalization())
    loader = TrainingLoader(*parts, seed=0, broken=BrokenImages(), workers=workers)

    def epoch() -> None:
        for _ in loader.epoch(0):
            pass

    return epoch


def crops_epoch(source: ImageFiles, framing: Framing, asked: argparse.Namespace) -> Epoch:
    """What the processor does if a GPU augments: read, decode, resize and crop, in one process."""

    def epoch() -> None:
        for samples in np.array_split(np.arange(len(source)), max(1, len(source) // asked.batch_size)):
            source.fetch(samples, random_cut(framing, 0, 0, samples))

    return epoch


def decoding_epoch(files: list[str]) -> Epoch:
    """Decode bytes in memory to whole images, in one process."""
    encoded = [Path(file).read_bytes() for file in files]

    def epoch() -> None:
        for content in encoded:
            simplejpeg.decode_jpeg(content, "RGB")

    return epoch


class InArray(Dataset[tuple[torch.Tensor, int]]):
    """Like torchvision's CIFAR10: an array, a PIL image from it, and the transforms."""

    def __init__(self, source: InMemory, transform: Callable[[Image.Image], torch.Tensor]) -> None:
        self.images = source.images.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels, self.transform = source.labels, transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.images[k])), int(self.labels[k])


def in_memory(source: InMemory, asked: argparse.Namespace) -> int:
    """The usual loader gets worker processes, favor one thread, so that it leaves the other cores to the model."""
    kept = True
    for name, three in (("crop, flip", False), ("3-Augment", True)):
        steps = [transforms.RandomCrop(32, padding=4, padding_mode="reflect"), transforms.RandomHorizontalFlip()]
        if three:
            choice = [transforms.Grayscale(3), transforms.RandomSolarize(128, p=1.0), transforms.Lambda(blur_pillow)]
            steps += [transforms.RandomChoice(choice), transforms.ColorJitter(0.3, 0.3, 0.3)]
        steps += [transforms.ToTensor(), transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
        usual = torchvision_epoch(InArray(source, transforms.Compose(steps)), asked)
        ours = favor_epoch(source, Framing(32, padding=4), three, asked, 0)
        ours()
        speeds = [(timed(usual, len(source))[0], timed(ours, len(source))[0]) for _ in range(asked.rounds)]
        ratios = sorted(favor / other for other, favor in speeds)
        compare(f"images in memory, {name}", {PILLOW: usual, "favor, one thread": ours}, len(source), asked)
        print(f"ratio of img/s: {statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})")
        kept &= statistics.median(ratios) >= LEAST_RATIO_IN_MEMORY
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
