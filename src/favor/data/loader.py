"""The data loader of one process: which samples, in which order, and how they become batches."""

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from favor.data.augment import Augmentation, Batch, Key, Normalization, augmented
from favor.data.broken import BrokenImages
from favor.data.draws import order
from favor.data.framing import Framing, center_cut, random_cut
from favor.data.sources import Fetched, ImageSource
from favor.errors import RequestError


@dataclass(frozen=True)
class Share:
    """The rank of this process and the number of processes."""

    process: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.process < self.processes:
            raise RequestError(f"process {self.process} of {self.processes}: ranks count from 0")


@dataclass(frozen=True)
class BatchPlan:
    """How the batch of one optimizer step is split into micro-batches, over processes and accumulation.

    >>> BatchPlan(images=50_000, batch_size=2048, accumulation=4).micro_batch_size
    512
    """

    images: int
    batch_size: int
    accumulation: int = 1
    share: Share = Share()

    def __post_init__(self) -> None:
        parts = self.share.processes * self.accumulation
        if self.accumulation < 1 or self.batch_size < 1 or self.batch_size % parts:
            raise RequestError(
                f"a batch of {self.batch_size} cannot be split evenly over {self.share.processes} processes with "
                f"{self.accumulation} accumulation steps; choose a multiple of {max(parts, 1)}"
            )
        if self.steps == 0:
            raise RequestError(
                f"{self.images} training images do not fill one batch of {self.batch_size}; "
                f"use --set batch_size={self.images} or less"
            )

    @property
    def micro_batch_size(self) -> int:
        return self.batch_size // (self.share.processes * self.accumulation)

    @property
    def steps(self) -> int:
        """Optimizer steps per epoch; the last partial batch is dropped."""
        return self.images // self.batch_size

    def micro_batches(self, seed: int, epoch: int, first_step: int = 0) -> list[NDArray[np.int64]]:
        """The samples of this process, `accumulation` arrays per step, from `first_step` on."""
        visited = order(seed, epoch, self.images)[: self.steps * self.batch_size]
        parts = visited.reshape(self.steps, self.accumulation, self.share.processes, self.micro_batch_size)
        return list(parts[first_step:, :, self.share.process].reshape(-1, self.micro_batch_size))


class TrainingLoader:
    """The augmented batches of each epoch.

    A batch depends only on seed, epoch and samples: not on processes, workers, or where a run was resumed.
    """

    def __init__(
        self,
        source: ImageSource,
        plan: BatchPlan,
        framing: Framing,
        augmentation: Augmentation,
        normalization: Normalization,
        *,
        seed: int,
        broken: BrokenImages,
        workers: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        if plan.images != len(source):
            raise RequestError(f"the plan is for {plan.images} images, the source has {len(source)}")
        self.source, self.plan, self.framing = source, plan, framing
        self.augmentation, self.normalization = augmentation, normalization
        self.seed, self.broken, self.workers, self.device = seed, broken, workers, torch.device(device)

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """The micro-batches of an epoch from a step on; `plan.accumulation` of them make a step.

        If all its images are broken, a micro-batch is empty, not skipped: the other processes expect it.
        """
        lists = self.plan.micro_batches(self.seed, epoch, first_step)
        asked = _Asked(self.source, lists, self.framing, self.seed, epoch)
        for fetched in _fetched(asked, self.workers, self.broken, self.device):
            squares = fetched.images
            labels = torch.from_numpy(self.source.labels[fetched.samples]).to(self.device)
            key = Key(self.seed, epoch, fetched.samples)
            yield augmented(squares, labels, key, self.augmentation, self.normalization)


class EvaluationLoader:
    """Each image once over all processes, the last partial batch included; center crop, no augmentation."""

    def __init__(
        self,
        source: ImageSource,
        batch_size: int,
        framing: Framing,
        normalization: Normalization,
        *,
        broken: BrokenImages,
        share: Share = Share(),  # noqa: B008 - frozen
        workers: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        if batch_size < 1:
            raise RequestError(f"the batch size must be 1 or more, not {batch_size}")
        self.source, self.batch_size, self.framing, self.normalization = source, batch_size, framing, normalization
        self.share, self.broken, self.workers, self.device = share, broken, workers, torch.device(device)

    def __iter__(self) -> Iterator[Batch]:
        mine = np.arange(self.share.process, len(self.source), self.share.processes)
        lists = [mine[first : first + self.batch_size] for first in range(0, len(mine), self.batch_size)]
        asked = _Asked(self.source, lists, self.framing)
        for fetched in _fetched(asked, self.workers, self.broken, self.device):
            if not len(fetched.samples):
                continue
            images = fetched.images.float().div_(255)
            labels = torch.from_numpy(self.source.labels[fetched.samples]).to(self.device)
            ones = torch.ones(len(labels), device=self.device)
            yield Batch(self.normalization(images).contiguous(), labels, fetched.samples, labels, ones)


def fetched_in_order(
    source: ImageSource, framing: Framing, batch_size: int, workers: int
) -> Iterator[tuple[NDArray[np.int64], Fetched]]:
    """The center crops of all images, batch by batch, with the samples that each batch was asked for."""
    lists = np.split(np.arange(len(source)), range(batch_size, len(source), batch_size))
    return zip(lists, _stream(_Asked(source, lists, framing), workers), strict=True)


class _Asked(Dataset[Fetched]):
    """The micro-batches of one pass, which worker processes fetch by index; without a seed, center crops."""

    def __init__(
        self,
        source: ImageSource,
        lists: Sequence[NDArray[np.int64]],
        framing: Framing,
        seed: int | None = None,
        epoch: int = 0,
    ) -> None:
        self.source, self.lists, self.framing, self.seed, self.epoch = source, lists, framing, seed, epoch

    def __len__(self) -> int:
        return len(self.lists)

    def __getitem__(self, number: int) -> Fetched:
        samples = self.lists[number]
        if self.seed is None:
            cut = center_cut(self.framing, len(samples))
        else:
            cut = random_cut(self.framing, self.seed, self.epoch, samples)
        return self.source.fetch(samples, cut)


def _fetched(asked: _Asked, workers: int, broken: BrokenImages, device: torch.device) -> Iterator[Fetched]:
    """The micro-batches in order, on the device; broken images are counted."""
    on_gpu = device.type == "cuda"
    stream = _stream(asked, workers, pinned=on_gpu)
    for fetched in _copied_ahead(stream, device) if on_gpu else _copied(stream, device):
        broken.add(fetched.broken)
        yield fetched


def _stream(asked: _Asked, workers: int, pinned: bool = False) -> Iterator[Fetched]:
    """The micro-batches in order; worker processes decode files, images in memory need none."""
    if workers < 0:
        raise RequestError(f"--workers must be 0 or more, not {workers}")
    if asked.source.in_memory or workers == 0:
        return (asked[number] for number in range(len(asked)))
    return iter(
        DataLoader(asked, batch_size=None, num_workers=workers, worker_init_fn=_outlive_sigterm, pin_memory=pinned)
    )


def _copied(stream: Iterator[Fetched], device: torch.device) -> Iterator[Fetched]:
    for fetched in stream:
        yield replace(fetched, images=fetched.images.to(device))


def _copied_ahead(stream: Iterator[Fetched], device: torch.device) -> Iterator[Fetched]:
    """Copy each micro-batch to the GPU while the model still works on the one before."""
    copies = torch.cuda.Stream(device)
    ahead: tuple[Fetched, torch.cuda.Event] | None = None
    for fetched in stream:
        with torch.cuda.stream(copies):
            images = fetched.images.to(device, non_blocking=True)
        last, ahead = ahead, (replace(fetched, images=images), copies.record_event())
        if last is not None:
            yield _arrived(*last)
    if ahead is not None:
        yield _arrived(*ahead)


def _arrived(fetched: Fetched, copied: torch.cuda.Event) -> Fetched:
    """Let the model's stream wait for the copy, and keep its memory until the model is done with it."""
    stream = torch.cuda.current_stream(fetched.images.device)
    stream.wait_event(copied)
    fetched.images.record_stream(stream)
    return fetched


def _outlive_sigterm(_worker: int) -> None:
    """Ignore SIGTERM in workers: a cluster sends it to all processes, but the training process has a step to finish.

    A worker ends when the training process ends it or has disappeared.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
