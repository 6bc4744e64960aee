"""The training loop: after the steps of each epoch come an evaluation, a record and a checkpoint.

`Progress` is the whole state of a run besides the weights, and every random number follows from seed, step and
sample. So a run that was stopped anywhere resumes as if it had never stopped.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from favor.data.augment import Batch
from favor.data.broken import BrokenImages
from favor.data.loader import BatchPlan, EvaluationLoader, TrainingLoader
from favor.errors import WorkError
from favor.machine.device import Device
from favor.machine.environment import Glance, glance, is_busy, others_between
from favor.records.schema import Record, Scalar
from favor.training.callbacks import Audience, StepNews
from favor.training.checkpoint import BEST, optimizer_state, save_checkpoint, save_model
from favor.training.clocks import Clocks
from favor.training.diagnosis import diagnose
from favor.training.distributed import Processes
from favor.training.energy import TrainingEnergy
from favor.training.epoch_record import Epoch, Memory, Subject, epoch_record
from favor.training.evaluation import EvaluationStopped, Scores, evaluate
from favor.training.randomness import SampleDraws, seed_all
from favor.training.recipe import Recipe
from favor.training.schedule import Schedule
from favor.training.signals import Stopped, StopRequest
from favor.training.state import Best, RunState, Sums, Survey, Trained, is_over
from favor.training.step import Learner
from favor.zoo.training import tell_progress

Ending = Literal["done", "stopped"]

# Reading a number from an accelerator synchronizes it; once a loss is not finite, the sum is not, either.
LOOK_EVERY = {"cpu": 1}
LOOK_EVERY_ELSEWHERE = 10
SMALLEST_SCALE = 2.0**-10


class DivergedError(WorkError):
    """The loss is not finite."""


@dataclass
class Progress:
    """The progress of a run: what changes from step to step besides the weights."""

    step: int = 0
    evaluated: int = 0
    sums: Sums = field(default_factory=Sums)
    best: Best | None = None
    last_top1: float | None = None
    joules: float | None = 0.0
    """The energy of the epochs before the current one; None once it was not measured."""
    stopped: bool = False
    since: Glance = field(default_factory=glance)
    """When the current epoch began, or the run was resumed."""


@dataclass(frozen=True)
class Parts:
    """The parts of a run; only the learner's weights, the clocks and the progress change."""

    subject: Subject
    recipe: Recipe
    plan: BatchPlan
    schedule: Schedule
    learner: Learner
    draws: SampleDraws
    loader: TrainingLoader
    evaluation: EvaluationLoader
    device: Device
    processes: Processes
    clocks: Clocks
    survey: Survey
    energy: TrainingEnergy
    broken: BrokenImages
    stop: StopRequest
    audience: Audience
    folder: Path
    save_every: float
    environment: dict[str, Scalar]
    trained: Trained
    asked: dict[str, object]
    keep: Callable[[Record], None]
    """Stores the record of an epoch."""

    @property
    def steps(self) -> int:
        return self.schedule.steps

    @property
    def stop_waits(self) -> bool:
        """Whether a stop waits for the end of a step: several processes must take the same steps."""
        return self.processes.count > 1

    def epochs_after(self, step: int) -> float:
        return step / self.plan.steps


def learn(parts: Parts, progress: Progress) -> tuple[Ending, Record | None]:
    """Train to the last step; returns how it ended and the last epoch's record. A stopped run is saved first."""
    record = None
    try:
        while progress.step < parts.steps or progress.evaluated < parts.steps:
            if progress.evaluated < progress.step == _end_of_epoch(parts, progress.step - 1):
                record = _finish_epoch(parts, progress)
            else:
                _train_epoch(parts, progress)
            _save(parts, progress)
            if progress.stopped:
                return "stopped", record
            if _is_over(parts, progress):
                break
    except (EvaluationStopped, Stopped):  # Stopped only comes from an evaluation; steps handle it themselves
        _save(parts, progress)
        return "stopped", record
    return "done", record


def _is_over(parts: Parts, progress: Progress) -> bool:
    """Whether the epoch that was just evaluated is the last one."""
    if progress.evaluated != progress.step or not progress.step:
        return False
    epochs = parts.epochs_after(progress.step)
    return progress.step == parts.steps or is_over(progress.best, parts.recipe.patience, epochs)


def _end_of_epoch(parts: Parts, step: int) -> int:
    """The step at which the epoch of a step ends; the schedule may cut the last epoch short."""
    return min((step // parts.plan.steps + 1) * parts.plan.steps, parts.steps)


def _train_epoch(parts: Parts, progress: Progress) -> None:
    """Take steps until the epoch is over, saving checkpoints when due."""
    epoch, first = divmod(progress.step, parts.plan.steps)
    batches = parts.loader.epoch(epoch, first)
    end = _end_of_epoch(parts, progress.step)
    parts.learner.weights.train()
    while progress.step < end and not progress.stopped:
        _train_stretch(parts, progress, batches, end)
        if progress.step < end and not progress.stopped:
            _save(parts, progress)


def _train_stretch(parts: Parts, progress: Progress, batches: Iterator[Batch], end: int) -> None:
    """Take steps until the epoch is over, a checkpoint is due, or the run is to stop."""
    look_every = LOOK_EVERY.get(parts.device.kind, LOOK_EVERY_ELSEWHERE)
    unread: list[Tensor] = []
    parts.energy.start()
    start, waited = parts.clocks.now(), 0.0
    with parts.clocks.training():
        while progress.step < end:
            looks = (progress.step + 1) % look_every == 0 or progress.step + 1 == end
            waited += _take_step(parts, progress, batches, unread, looks)
            if progress.stopped and not parts.stop_waits:
                break  # the step was abandoned
            if looks:
                seconds = parts.clocks.now() - start
                parts.audience.stepped(_news(parts, progress, seconds))
                if progress.stopped or seconds >= parts.save_every:
                    break
        parts.device.synchronize()
    seconds = parts.clocks.now() - start
    joules, sums, processes = parts.energy.stop(), progress.sums, parts.processes.count
    progress.sums = sums.model_copy(
        update={
            "seconds": sums.seconds + seconds,
            "seconds_total": sums.device_seconds(processes) + seconds * processes,
            "waited": sums.waited + waited,
            "joules": _sum_or_none(sums.joules, joules),
        }
    )


def _take_step(parts: Parts, progress: Progress, batches: Iterator[Batch], unread: list[Tensor], looks: bool) -> float:
    """One optimizer step; returns the seconds spent waiting for data."""
    step, seed, learner = progress.step, parts.recipe.seed, parts.learner
    lr = parts.schedule.at(step)
    seed_all(seed, step)
    tell_progress(learner.weights, step / max(parts.steps - 1, 1))
    waited, images, before = 0.0, 0, len(unread)
    buffers = [] if parts.stop_waits else [buffer.clone() for buffer in learner.weights.buffers()]
    try:
        with nullcontext() if parts.stop_waits else parts.stop.at_once():
            for number in range(parts.plan.accumulation):
                asked = parts.clocks.now()
                batch = next(batches)
                waited += parts.clocks.now() - asked
                parts.draws.begin(step, batch.samples)
                seed_all(seed, step, 1 + parts.processes.share.process, number)
                unread.append(learner.gather(batch, last=number + 1 == parts.plan.accumulation))
                images += len(batch)
    except Stopped:
        _abandon_step(parts, progress, unread[:before], buffers)
        return waited
    loss = float(torch.stack(unread).double().sum()) if looks else 0.0
    images_of_all, stops, loss_of_all = parts.processes.sums([images, parts.stop.asked, loss])
    if not math.isfinite(loss_of_all):
        raise _diverged(parts, progress, batch, f"the loss is {loss_of_all}", learner.gradient_norm())
    norm = learner.clip(int(images_of_all))
    if looks and norm is not None and not learner.scaler.is_enabled() and not math.isfinite(norm):
        raise _diverged(parts, progress, batch, "the gradient is not finite", float(norm))
    learner.update(lr)
    if looks and learner.scaler.is_enabled() and learner.scaler.get_scale() < SMALLEST_SCALE:
        raise _diverged(parts, progress, batch, "gradients overflow float16 at every loss scale", math.nan)
    sums = progress.sums
    progress.sums = sums.model_copy(
        update={"loss": sums.loss + loss_of_all, "images": sums.images + int(images_of_all)}
    )
    progress.step += 1
    if looks:
        unread.clear()
        progress.stopped = bool(stops)
    return waited


def _abandon_step(parts: Parts, progress: Progress, unread: list[Tensor], buffers: list[Tensor]) -> None:
    """Undo the changes of an unfinished step: the resumed run repeats it from its beginning."""
    with torch.no_grad():
        for buffer, kept in zip(parts.learner.weights.buffers(), buffers, strict=True):
            buffer.copy_(kept)
    if unread:  # of steps before it
        loss = progress.sums.loss + float(torch.stack(unread).double().sum())
        progress.sums = progress.sums.model_copy(update={"loss": loss})
    progress.stopped = True


def _finish_epoch(parts: Parts, progress: Progress) -> Record:
    """Evaluate, write the record, keep the model if it is the best so far."""
    if not progress.sums.images:
        raise WorkError(f"{parts.subject.model}: none of the training images could be read")
    with parts.clocks.evaluation():
        parts.processes.share_buffers(parts.learner.weights)
        with nullcontext() if parts.stop_waits else parts.stop.at_once():
            scores = evaluate(
                parts.learner.weights,
                parts.evaluation,
                parts.learner.precision,
                parts.processes,
                lambda: parts.stop.asked,
            )
    if not math.isfinite(scores.loss):
        raise _diverged_in_evaluation(parts, progress, scores)
    progress.evaluated, progress.last_top1 = progress.step, scores.top1
    progress.joules = _sum_or_none(progress.joules, progress.sums.joules)
    is_best = progress.best is None or progress.best.is_worse_than(scores.top1, scores.loss)
    if is_best:
        progress.best = Best(top1=scores.top1, epochs=parts.epochs_after(progress.step), loss=scores.loss)
    record, news = _record(parts, progress, scores), _news(parts, progress, 0.0)
    progress.sums, progress.since = Sums(), glance()
    if parts.processes.leads:
        parts.keep(record)
        if is_best:
            save_model(parts.folder / BEST, parts.learner.weights, _trained(parts, progress))
        parts.audience.evaluated(record, news)
        if progress.step < parts.steps and _is_over(parts, progress) and progress.best is not None:
            parts.audience.note(
                f"{parts.subject.model}: early stop: the last {parts.recipe.patience} epochs were not better than "
                f"epoch {progress.best.epochs:g} with {progress.best.top1:.2f} %"
            )
    return record


def _record(parts: Parts, progress: Progress, scores: Scores) -> Record:
    others = others_between(progress.since, glance())
    busy = is_busy(others, int(parts.environment["processors"])) and parts.processes.count == 1
    environment: dict[str, Scalar] = {
        **parts.environment,
        "others_during": round(others, 3),
        "flags": "busy" if busy else "",
        "broken_images": parts.broken.count,
    }
    epoch = Epoch(
        epochs=parts.epochs_after(progress.step),
        final=_is_over(parts, progress),
        scores=scores,
        sums=progress.sums,
        clocks=parts.clocks.read(),
        images_of_an_epoch=parts.plan.steps * parts.plan.batch_size,
        processes=parts.processes.count,
        micro_batch_size=parts.plan.micro_batch_size,
        memory=_memory(parts),
        joules=progress.joules,
        energy_method=parts.energy.method,
    )
    return epoch_record(parts.subject, epoch, parts.survey, environment)


def _memory(parts: Parts) -> Memory:
    """The peak of the whole training run if the device reports it, otherwise that of the survey's step."""
    if parts.device.kind != "cuda":
        survey = parts.survey
        alone = ", without the buffers for the exchange of gradients" if parts.processes.count > 1 else ""
        return Memory(survey.memory, survey.memory_total or survey.memory, survey.memory_method + alone)
    peak = torch.cuda.max_memory_allocated(parts.device.torch_device)
    method = "torch.cuda.max_memory_allocated, whole training"
    return Memory(int(parts.processes.largest(peak)), int(parts.processes.sums([peak])[0]), method)


def _sum_or_none(before: float | None, more: float | None) -> float | None:
    return None if before is None or more is None else before + more


def _save(parts: Parts, progress: Progress) -> None:
    if not parts.processes.leads:
        return
    state = RunState(
        run=parts.trained.run,
        asked=parts.asked,
        steps=parts.steps,
        survey=parts.survey,
        step=progress.step,
        evaluated=progress.evaluated,
        sums=progress.sums,
        best=progress.best,
        last_top1=progress.last_top1,
        clocks=parts.clocks.read(),
        joules=progress.joules,
        optimizer=optimizer_state(parts.learner.optimizer),
        scaler=parts.learner.scaler.state_dict(),
    )
    trained = _trained(parts, progress)
    save_checkpoint(parts.folder, parts.learner.weights, trained, parts.learner.optimizer, state)


def _trained(parts: Parts, progress: Progress) -> Trained:
    top1 = progress.last_top1 if progress.evaluated == progress.step else None
    update = {"step": progress.step, "epochs": parts.epochs_after(progress.step), "top1": top1}
    return parts.trained.model_copy(update=update)


def _news(parts: Parts, progress: Progress, seconds_of_stretch: float) -> StepNews:
    sums = progress.sums
    seconds = sums.seconds + seconds_of_stretch
    evaluations_left = math.ceil(parts.steps / parts.plan.steps) - math.ceil(progress.evaluated / parts.plan.steps)
    per_step = seconds * parts.plan.batch_size / sums.images if sums.images else parts.survey.end_to_end
    return StepNews(
        step=progress.step,
        steps=parts.steps,
        epochs=parts.epochs_after(progress.step),
        loss=sums.loss / sums.images if sums.images else math.nan,
        top1=progress.last_top1,
        images_per_second=sums.images / seconds if seconds else 0.0,
        seconds_left=per_step * (parts.steps - progress.step) + evaluations_left * parts.survey.evaluation_time,
    )


def _diverged(parts: Parts, progress: Progress, batch: Batch, what: str, norm: float) -> DivergedError:
    """The error: where it happened, what was seen, and what to try."""
    epoch, step = divmod(progress.step, parts.plan.steps)
    lr = parts.schedule.at(progress.step)
    cause = diagnose(parts.learner.weights, batch, parts.learner.precision)
    return DivergedError(
        f"{parts.subject.model}: {what} in epoch {epoch + 1}, step {step + 1} of {parts.plan.steps} "
        f"(learning rate {lr:.3g}, gradient norm {norm:.3g}): {cause}; try {_tries(parts.recipe)}"
    )


def _diverged_in_evaluation(parts: Parts, progress: Progress, scores: Scores) -> DivergedError:
    """The error if the last step of an epoch diverged, which only the next training loss would have shown."""
    batch = next(iter(parts.evaluation), None)
    if batch is None:  # more processes than images, or all of this one are broken
        cause = "this process has no evaluation image to show where"
    else:
        cause = str(diagnose(parts.learner.weights, batch, parts.learner.precision))
    epochs, lr = parts.epochs_after(progress.step), parts.schedule.at(progress.step - 1)
    return DivergedError(
        f"{parts.subject.model}: the loss of the evaluation is {scores.loss} after {epochs:g} epochs "
        f"(learning rate {lr:.3g}): {cause}; try {_tries(parts.recipe)}"
    )


def _tries(recipe: Recipe) -> str:
    tries = [f"--set lr={recipe.lr / 3:.2g}", f"--set warmup_epochs={max(1.0, 2 * recipe.warmup_epochs):g}"]
    tries += ["--set clip_grad=1.0"] if recipe.clip_grad is None else []
    tries += ["--set precision=fp32"] if recipe.precision != "fp32" else []
    return " or ".join(tries)
