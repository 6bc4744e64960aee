"""What a step costs, measured before the training on a throwaway model: memory, time, the wait for data.

It decides how many micro-batches a step is split into if memory is short, and how many steps fit a time budget.
"""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice

import torch

from favor.data.augment import Batch
from favor.data.loader import BatchPlan, EvaluationLoader, TrainingLoader
from favor.errors import WorkError
from favor.machine.clock import Clock, WallClock
from favor.machine.device import Device
from favor.machine.memory import bytes_of
from favor.machine.stopping import StoppingRule, collect, quantile
from favor.machine.timing import seconds_per_call, time_end_to_end
from favor.training.recipe import Recipe
from favor.training.state import Survey
from favor.training.step import Learner
from favor.units import format_quantity

SHARE_OF_FREE_MEMORY = 0.85
SMALL_BATCHES = (2, 4)
"""Memory at two batch sizes gives the line along which it grows; batch norms refuse a single image."""


def survey(
    learner_for: Callable[[BatchPlan], Learner],
    loader_for: Callable[[BatchPlan], TrainingLoader],
    evaluation: EvaluationLoader,
    recipe: Recipe,
    plan: BatchPlan,
    device: Device,
    budget: float,
    accumulation: int | None,
) -> Survey:
    """Survey a training run; `accumulation` is searched unless given, `budget` is in seconds per timing."""
    clock = WallClock()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else PyTorch's profiler writes to stderr
    if accumulation is None:
        accumulation = needed_accumulation(plan, _memory_line(learner_for(plan), loader_for(plan), plan, device))
    plan = replace(plan, accumulation=accumulation)
    learner = learner_for(plan)
    batches = steps_of(loader_for(plan))
    held = next(batches)

    def step(micro_batches: list[Batch]) -> None:
        take_step(learner, micro_batches, recipe.lr * 1e-3)

    step(held)  # the first step allocates the optimizer's state
    peak = device.peak_of(lambda: step(held), _held_tensors(learner, held))
    rule = StoppingRule(budget=max(budget, 1e-9))
    samples = collect(lambda: seconds_per_call(lambda: step(held), 1, device, clock), rule, clock)
    in_memory = quantile(samples.seconds, 0.5)
    with_data = time_end_to_end(step, batches, in_memory.value, device, clock, rule)
    return Survey(
        accumulation=accumulation,
        step_time=in_memory.value,
        step_time_low=in_memory.low,
        step_time_high=in_memory.high,
        end_to_end=with_data.step_time.value,
        end_to_end_low=with_data.step_time.low,
        end_to_end_high=with_data.step_time.high,
        idle=with_data.idle_time,
        evaluation_time=_evaluation_time(learner, evaluation, device, clock),
        memory=peak.allocated,
        memory_method=f"{peak.method}; micro-batches of {plan.micro_batch_size} images, {recipe.optimizer} included",
    )


def take_step(learner: Learner, micro_batches: list[Batch], lr: float) -> None:
    """A whole step of one process alone."""
    learner.weights.train()
    for number, batch in enumerate(micro_batches, 1):
        learner.gather(batch, last=number == len(micro_batches))
    learner.clip(sum(len(batch) for batch in micro_batches))
    learner.update(lr)


def steps_of(loader: TrainingLoader) -> Iterator[list[Batch]]:
    """The micro-batches of each step, epoch after epoch, without end."""
    for epoch in count():
        batches = loader.epoch(epoch)
        while micro_batches := list(islice(batches, loader.plan.accumulation)):
            yield micro_batches


def needed_accumulation(plan: BatchPlan, memory: tuple[float, float, float]) -> int:
    """The fewest micro-batches that fit; `memory` is (fixed bytes, bytes per image, free bytes).

    >>> needed_accumulation(BatchPlan(images=1000, batch_size=64), (100.0, 10.0, 300.0))
    4
    """
    fixed, per_image, room = memory
    largest = plan.micro_batch_size
    for parts in range(1, largest + 1):
        if largest % parts == 0 and fixed + per_image * (largest // parts) <= room:
            return parts
    raise WorkError(
        f"not even one image fits into memory: a step takes {format_quantity(fixed + per_image, 'B')}, "
        f"but only {format_quantity(room, 'B')} are free"
    )


def fitting_steps(seconds: float, survey: Survey, steps_per_epoch: int) -> int:
    """The steps that fit into a budget, with the evaluation after each epoch, the last one included.

    >>> s = Survey(accumulation=1, step_time=1, step_time_low=None, step_time_high=None, end_to_end=1.0, idle=0,
    ...     end_to_end_low=None, end_to_end_high=None, evaluation_time=10.0, memory=0, memory_method="")
    >>> fitting_steps(100.0, s, 30), fitting_steps(25.0, s, 30)
    (70, 15)
    """
    epoch = steps_per_epoch * survey.end_to_end + survey.evaluation_time
    whole = math.floor(seconds / epoch)
    left = seconds - whole * epoch - survey.evaluation_time
    return whole * steps_per_epoch + max(0, min(math.floor(left / survey.end_to_end), steps_per_epoch))


def _memory_line(
    learner: Learner, loader: TrainingLoader, plan: BatchPlan, device: Device
) -> tuple[float, float, float]:
    """The fixed bytes of a step, its bytes per image, and the free bytes."""
    sizes = [size for size in SMALL_BATCHES if size <= plan.micro_batch_size]
    batch = next(loader.epoch(0))
    if len(sizes) < len(SMALL_BATCHES):
        return 0.0, 0.0, math.inf  # so small a batch cannot be split much further
    peaks = []
    for size in sizes:
        part = first_images(batch, size)
        take_step(learner, [part], 0.0)
        peaks.append(device.peak_of(lambda part=part: take_step(learner, [part], 0.0), _held_tensors(learner, [part])))  # type: ignore[misc]
    per_image = (peaks[1].allocated - peaks[0].allocated) / (sizes[1] - sizes[0])
    held = bytes_of(_held_tensors(learner, []))
    return (
        peaks[0].allocated - per_image * sizes[0],
        per_image,
        SHARE_OF_FREE_MEMORY * device.room(held, None),
    )


def first_images(batch: Batch, size: int) -> Batch:
    """The first images of a batch as a batch."""
    return Batch(
        batch.images[:size], batch.labels[:size], batch.samples[:size], batch.other_labels[:size], batch.share[:size]
    )


def _held_tensors(learner: Learner, batches: list[Batch]) -> list[torch.Tensor]:
    state = [
        value for values in learner.optimizer.state.values() for value in values.values() if torch.is_tensor(value)
    ]
    weights = [*learner.weights.parameters(), *learner.weights.buffers()]
    return [*weights, *state, *(batch.images for batch in batches)]


def _evaluation_time(learner: Learner, loader: EvaluationLoader, device: Device, clock: Clock) -> float:
    """Seconds of one evaluation, from its first batches."""
    learner.weights.eval()
    images, seconds = 0, 0.0
    batches = iter(loader)
    with torch.inference_mode():
        for timed in (False, True, True):  # the first call allocates
            device.synchronize()
            start = clock.now()
            batch = next(batches, None)
            if batch is None:
                break
            with learner.precision.context(learner.device):
                learner.weights(batch.images)
            device.synchronize()
            if timed or len(batch) == len(loader.source):
                images, seconds = images + len(batch), seconds + clock.now() - start
    return seconds / images * len(loader.source) / loader.share.processes if images else 0.0
