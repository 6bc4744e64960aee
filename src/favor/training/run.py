"""From a request to a trained model: find what to resume, build the parts, and run the loop."""

import json
import uuid
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from favor.data.broken import BrokenImages
from favor.data.image_files import in_memory_if_small
from favor.data.loader import BatchPlan, EvaluationLoader, TrainingLoader
from favor.data.opening import open_data
from favor.data.sources import DataSet, ImageSource
from favor.errors import RequestError, WorkError
from favor.machine.device import Device, find_device
from favor.machine.environment import describe
from favor.machine.locks import locked
from favor.machine.memory import is_out_of_memory
from favor.machine.precision import Precision, training_precision
from favor.records.schema import Record, Scalar, Status
from favor.records.store import append, deleted, has_records, read
from favor.text import cut_to_line, plural
from favor.trace.attention import attention_implementation
from favor.training.callbacks import Audience, Nobody
from favor.training.checkpoint import Checkpoint, UnusableFileError, newest_checkpoint, restore_optimizer
from favor.training.clocks import Clocks
from favor.training.distributed import Processes, device_of_this_process, joined, workers_of_this_process
from favor.training.energy import training_energy
from favor.training.epoch_record import Subject, failure_record
from favor.training.initial_weights import Start, start_from
from favor.training.loop import Ending, Parts, Progress, learn
from favor.training.preprocessing import augmentation_of, framing_of, normalization_of
from favor.training.randomness import draw_drop_path_by_sample, seed_all
from favor.training.recipe import Recipe
from favor.training.request import TrainingRequest
from favor.training.run_data import has_other_images, read_run_data, save_run_data
from favor.training.schedule import Schedule, schedule_of
from favor.training.signals import Stopped, StopRequest, heeding_signals
from favor.training.state import Readings, Survey, Trained, some
from favor.training.step import Learner
from favor.training.survey import fitting_steps, survey
from favor.training.trackers import TrackedRun, tracked
from favor.units import format_span
from favor.version import __version__
from favor.zoo.registry import card, create_model, loaded_plugins
from favor.zoo.training import tell_progress
from favor.zoo.weights import load_weights


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its last record, where its files are, and the signal that stopped it."""

    ending: Ending
    record: Record | None
    folder: Path
    stopped_by: str | None = None


@dataclass(frozen=True)
class Setting:
    """A request resolved on this machine."""

    request: TrainingRequest
    device: Device
    processes: Processes
    data: DataSet
    start: Start
    plan: BatchPlan
    broken: BrokenImages
    train_images: ImageSource
    evaluation_images: ImageSource
    """Those of the dataset, in memory where they fit."""

    @property
    def recipe(self) -> Recipe:
        return self.request.recipe

    @property
    def subject(self) -> Subject:
        request = self.request
        name = card(request.model).name
        return Subject(
            model=name,
            recipe=self.recipe,
            dataset=self.dataset,
            start=self.start,
            minutes=request.minutes,
            device_label=self.device.label,
            device_kind=self.device.kind,
            attention=request.attention,
            grid_intensity=request.grid_intensity,
            price_per_hour=request.price_per_hour,
            pipeline=request.pipeline,
            overrides=request.overrides,
            name=request.name,
        )

    @property
    def folder(self) -> Path:
        """The folder of the checkpoints: one per model, recipe, data, initial weights, img_size, seed and attention."""
        recipe, start = self.recipe, self.start
        learned = "" if start.pretraining == "none" else f"-after-{start.pretraining}"
        learned += "" if start.img_size is None else f"-{start.img_size}px"
        learned += "" if start.hash is None else f"-{start.hash[:8]}"
        name = f"{card(self.request.model).name}-{recipe.name}-{self.dataset}{learned}"
        name = f"{name}-{recipe.img_size}px-seed{recipe.seed}"
        name += "" if self.request.attention == "fused" else f"-{self.request.attention}"
        name += "" if self.request.name is None else f"-{self.request.name}"
        return self.request.study / "runs" / "".join(c if c.isalnum() or c in "-_.+" else "_" for c in name)

    @property
    def dataset(self) -> str:
        """The dataset as records name it: two image folders are two datasets."""
        return f"{self.data.name}:{Path(self.data.place).name}" if self.data.name == "folder" else self.data.name

    def asked(self) -> dict[str, object]:
        """What must be the same when the run is resumed."""
        recipe = self.recipe.model_dump(mode="json", exclude={"doc", "data"})
        asked = {
            "model": card(self.request.model).name,
            "data set": self.dataset,
            "training images": len(self.data.train),
            "pretraining": self.start.pretraining,
            "pretraining image size": self.start.img_size,
            "initial weights": self.start.hash,
            "minutes": self.request.minutes,
            "attention": self.request.attention,
        }
        return json.loads(json.dumps(asked | recipe))

    def environment(self) -> dict[str, Scalar]:
        described = describe(self.device, torch.get_num_threads(), loaded_plugins())
        return described | {"run": self.folder.name, "processes": self.processes.count}


def train(request: TrainingRequest, audience: Audience | None = None) -> Outcome:
    """Train one model; a failure is written as a record and raised as a WorkError."""
    card(request.model).image_sizes.check(request.model, (request.recipe.img_size,) * 2)
    device = find_device(device_of_this_process(request.device))
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    with joined(device.kind) as processes, heeding_signals() as stop:
        heard = audience if audience is not None and processes.leads else Nobody()
        setting = _setting(request, device, processes)
        if request.recipe.precision == "amp" and training_precision("amp", device.kind) == "fp32":
            heard.note("this CPU has no known bfloat16 instructions: training in fp32, since amp would be slower")
        taken = f"{setting.folder} is being trained by {{holder}}; wait for it, or give another --study"
        locks = processes.leads and request.writer is None
        with locked(setting.folder / ".lock", taken, "") if locks else nullcontext():
            try:
                with attention_implementation(request.attention):
                    return _run(setting, heard, stop)
            except RequestError:
                raise
            except Exception as error:
                raise _failed(setting, error) from error


def _run(setting: Setting, audience: Audience, stop: StopRequest) -> Outcome:
    checkpoint = _checkpoint(setting, audience)
    if checkpoint is not None and _has_ended(setting, checkpoint):
        audience.note(f"{setting.folder} is already fully trained")
        final = next((record for record in reversed(_records(setting)) if record.conditions.get("final") is True), None)
        return Outcome("done", final, setting.folder)
    if checkpoint is not None:
        _refuse_other_images(setting)
    if setting.processes.leads:
        save_run_data(setting.folder, setting.request.data, setting.data)
    clocks = Clocks(checkpoint.state.clocks if checkpoint else Readings(), processes=setting.processes.count)
    try:
        with nullcontext() if setting.processes.count > 1 else stop.at_once():
            survey = (
                _kept_survey(setting, checkpoint.state.survey, audience) if checkpoint else _surveyed(setting, audience)
            )
    except Stopped:
        return Outcome("stopped", None, setting.folder, stop.signal.name if stop.signal else None)
    setting = replace(setting, plan=replace(setting.plan, accumulation=survey.accumulation))
    schedule = _schedule(setting, survey, checkpoint, audience)
    parts = _parts(setting, schedule, survey, checkpoint, clocks, audience, stop)
    progress = _restored(parts, checkpoint) if checkpoint else Progress()
    names = setting.request.log if setting.processes.leads else ()
    with tracked(names, _tracked_run(setting, parts, checkpoint), audience) as audience:
        ending, record = learn(replace(parts, audience=audience), progress)
    return Outcome(ending, record, setting.folder, stop.signal.name if stop.signal else None)


def _has_ended(setting: Setting, checkpoint: Checkpoint) -> bool:
    return checkpoint.state.has_ended(setting.recipe.patience, checkpoint.state.step / setting.plan.steps)


def _setting(request: TrainingRequest, device: Device, processes: Processes) -> Setting:
    data = open_data(request.data)
    plan = BatchPlan(len(data.train), request.recipe.batch_size, request.accumulation or 1, processes.share)
    start = start_from(request.init, request.model) if request.init else Start()
    if request.init_hash not in (None, start.hash):
        raise RequestError(f"{request.init} has changed since the training was requested; request it again")
    side = request.recipe.img_size
    images = (in_memory_if_small(source, side) for source in (data.train, data.evaluation))
    return Setting(request, device, processes, data, start, plan, BrokenImages(), *images)


def _checkpoint(setting: Setting, audience: Audience) -> Checkpoint | None:
    """The checkpoint to resume from; None for a new run."""
    folder, request = setting.folder, setting.request
    newest, refused = newest_checkpoint(folder)
    if not request.resume:
        if newest is not None:
            raise RequestError(
                f"{folder} already has a run, at step {newest.state.step} of {newest.state.steps}; "
                "continue it with --resume, or choose another --study"
            )
        return None
    for reason in refused:
        audience.note(f"skipped a checkpoint: {reason}")
    if newest is None:
        audience.note(f"nothing to resume in {folder}; starting a new run")
        return None
    asked = setting.asked()
    for key, then in newest.state.asked.items():
        if asked.get(key) != then:
            raise RequestError(
                f"{newest.file}: the run was started with {key} {then!r}, not {asked.get(key)!r}; "
                "use the same value, or choose another --study"
            )
    if newest.trained.classes != setting.data.classes:
        raise RequestError(
            f"{newest.file}: the run has {some(newest.trained.classes)}, the data have "
            f"{some(setting.data.classes)}; use the same data, or choose another --study"
        )
    audience.note(f"resumed from step {newest.state.step} of {newest.state.steps} ({newest.file.name})")
    return newest


def _refuse_other_images(setting: Setting) -> None:
    kept = read_run_data(setting.folder)
    if kept is not None and has_other_images(kept, setting.data):
        raise RequestError(
            f"{setting.folder}: images of {setting.request.data} were added, removed or renamed since the run was "
            "started; use the same images, or choose another --study"
        )


def _kept_survey(setting: Setting, kept: Survey, audience: Audience) -> Survey:
    """The run's original survey, unless its micro-batches change from now on."""
    parts = setting.request.accumulation
    if parts in (None, kept.accumulation):
        return kept
    audience.note(
        f"from now on each batch is split into {parts} micro-batches, not {kept.accumulation}; the optimizer's "
        "batch size stays the same, but the result is no longer bit-identical to that of an uninterrupted run"
    )
    return _surveyed(setting, audience)


def _surveyed(setting: Setting, audience: Audience) -> Survey:
    """The leading process's survey, which all processes use."""
    request = setting.request

    own = survey(
        lambda plan: _learner(setting, _built(setting), plan),
        lambda plan: _training_loader(setting, plan),
        _evaluation_loader(setting, setting.plan),
        setting.recipe,
        setting.plan,
        setting.device,
        request.survey_seconds,
        request.accumulation,
    )
    setting.device.release()
    of_all = {
        "memory": int(setting.processes.largest(own.memory)),
        "memory_total": int(setting.processes.sums([own.memory])[0]),
    }
    agreed = setting.processes.agree(own.model_copy(update=of_all).model_dump_json())
    measured = Survey.model_validate_json(str(agreed))
    plan = replace(setting.plan, accumulation=measured.accumulation)
    if request.accumulation is None and measured.accumulation > 1:
        audience.note(
            f"memory is short: each batch of {plan.batch_size} is split into {measured.accumulation} micro-batches of "
            f"{plan.micro_batch_size} per process; the optimizer's batch size stays {plan.batch_size}"
        )
    return measured


def _schedule(setting: Setting, survey: Survey, checkpoint: Checkpoint | None, audience: Audience) -> Schedule:
    """The learning rates of all steps; a time budget fixes their number once, at the start."""
    per_epoch, minutes = setting.plan.steps, setting.request.minutes
    if checkpoint is not None:
        return schedule_of(setting.recipe, per_epoch, checkpoint.state.steps)
    if minutes is None:
        schedule, epochs = schedule_of(setting.recipe, per_epoch), setting.recipe.epochs
        span = format_span(schedule.steps * survey.end_to_end + epochs * survey.evaluation_time)
        audience.note(
            f"{plural(epochs, 'epoch')} of {plural(per_epoch, 'step')} with {setting.recipe.batch_size} images: "
            f"{'at most ' if setting.recipe.patience else ''}about {span}"
        )
        return schedule
    steps = fitting_steps(60 * minutes, survey, per_epoch)
    if steps < 1:
        raise RequestError(
            f"--minutes {minutes:g}: not one step fits; a step takes {survey.end_to_end:.3g} s and the evaluation "
            f"{survey.evaluation_time:.3g} s here"
        )
    audience.note(
        f"{minutes:g} minutes: {steps} steps of {survey.end_to_end:.3g} s are {steps / per_epoch:.3g} epochs, "
        f"with {survey.evaluation_time:.3g} s for each evaluation; the whole schedule is fitted to them"
    )
    return schedule_of(setting.recipe, per_epoch, steps)


def _parts(
    setting: Setting,
    schedule: Schedule,
    survey: Survey,
    checkpoint: Checkpoint | None,
    clocks: Clocks,
    audience: Audience,
    stop: StopRequest,
) -> Parts:
    """Build what the loop needs."""
    request, recipe, plan = setting.request, setting.recipe, setting.plan
    idle = bool(card(request.model).idle_parameters)
    learner = _learner(setting, setting.processes.wrapped(_built(setting, audience), idle), plan)
    written = _written(setting) if checkpoint else frozenset()

    def keep(record: Record) -> None:
        # On a cluster, a node that was given up may still be at work on the same run.
        if record.conditions["epochs"] not in (_written(setting) if request.writer else written):
            if not request.study.is_dir():
                raise deleted(request.study)
            append(request.study, [record], writer=request.writer)

    return Parts(
        subject=setting.subject,
        recipe=recipe,
        plan=plan,
        schedule=schedule,
        learner=learner,
        draws=draw_drop_path_by_sample(learner.weights, recipe.seed),
        loader=_training_loader(setting, plan),
        evaluation=_evaluation_loader(setting, plan),
        device=setting.device,
        processes=setting.processes,
        clocks=clocks,
        survey=survey,
        energy=training_energy(setting.device, setting.processes.count, audience),
        broken=setting.broken,
        stop=stop,
        audience=audience,
        folder=setting.folder,
        save_every=request.save_every,
        environment=setting.environment() | {"accumulation": plan.accumulation},
        trained=_trained(setting, checkpoint),
        asked=setting.asked(),
        keep=keep,
    )


def _built(setting: Setting, audience: Audience | None = None) -> nn.Module:
    """The model with its initial weights, reproducibly."""
    recipe = setting.recipe
    seed_all(recipe.seed)
    model = create_model(
        setting.request.model,
        num_classes=setting.data.num_classes,
        img_size=recipe.img_size,
        drop_path=recipe.drop_path,
    )
    said = setting.start.give_weights(model, setting.data.classes)
    if said and audience is not None:
        audience.note(said)
    return model.to(setting.device.torch_device)


def _learner(setting: Setting, model: nn.Module, plan: BatchPlan) -> Learner:
    kind = setting.device.kind
    precision = Precision.named(training_precision(setting.recipe.precision, kind), kind)
    return Learner(model, setting.recipe, plan, setting.data.num_classes, precision)


def _training_loader(setting: Setting, plan: BatchPlan) -> TrainingLoader:
    recipe = setting.recipe
    return TrainingLoader(
        setting.train_images,
        plan,
        framing_of(recipe),
        augmentation_of(recipe),
        normalization_of(recipe),
        seed=recipe.seed,
        broken=setting.broken,
        workers=workers_of_this_process(setting.request.workers),
        device=setting.device.torch_device,
    )


def _evaluation_loader(setting: Setting, plan: BatchPlan) -> EvaluationLoader:
    recipe = setting.recipe
    return EvaluationLoader(
        setting.evaluation_images,
        plan.micro_batch_size,
        framing_of(recipe),
        normalization_of(recipe),
        broken=setting.broken,
        share=plan.share,
        workers=workers_of_this_process(setting.request.workers),
        device=setting.device.torch_device,
    )


def _trained(setting: Setting, checkpoint: Checkpoint | None) -> Trained:
    if checkpoint is not None:
        return checkpoint.trained
    return Trained(
        favor=__version__,
        run=str(setting.processes.agree(uuid.uuid4().hex)),
        step=0,
        epochs=0.0,
        model=card(setting.request.model).name,
        img_size=setting.recipe.img_size,
        in_chans=3,
        classes=setting.data.classes,
        dataset=setting.dataset,
        pretraining=setting.start.pretraining,
        pretraining_pipeline=setting.start.pipeline,
        pretraining_seed=setting.start.seed,
        recipe=setting.recipe,
        pipeline=str(setting.subject.conditions()["pipeline"]),
        minutes=setting.request.minutes,
        top1=None,
    )


def _tracked_run(setting: Setting, parts: Parts, checkpoint: Checkpoint | None) -> TrackedRun:
    about = {"model": parts.subject.model, **parts.subject.conditions(), **parts.environment}
    return TrackedRun(
        id=parts.trained.run,
        name=setting.folder.name,
        study=setting.request.study.resolve().name,
        folder=setting.folder,
        settings=about,
        resumed_from=None if checkpoint is None else checkpoint.state.step,
    )


def _restored(parts: Parts, checkpoint: Checkpoint) -> Progress:
    """Restore weights, optimizer and scaler; returns the progress of the run."""
    state, learner = checkpoint.state, parts.learner
    try:
        restore_optimizer(learner.weights, learner.optimizer, state.optimizer, checkpoint.tensors)
    except UnusableFileError as error:
        raise RequestError(f"{checkpoint.file}: {error}; train again in another --study") from error
    learner.scaler.load_state_dict(state.scaler)
    if state.step:
        # Modules that follow the progress get the last value again, so that they do not take the next for the first.
        tell_progress(learner.weights.train(), (state.step - 1) / max(parts.steps - 1, 1))
    load_weights(learner.weights, checkpoint.weights, (checkpoint.trained.img_size,) * 2)
    if parts.processes.sums([state.step]) != (parts.processes.count * state.step,):
        raise WorkError(
            f"the processes see different checkpoints in {parts.folder}; all processes must share one folder"
        )
    return Progress(
        step=state.step,
        evaluated=state.evaluated,
        sums=state.sums,
        best=state.best,
        last_top1=state.last_top1,
        joules=state.joules,
    )


def _written(setting: Setting) -> frozenset[Scalar]:
    """The epochs of this run that already have a record."""
    return frozenset(record.conditions["epochs"] for record in _records(setting) if record.status == "ok")


def _records(setting: Setting) -> list[Record]:
    study, run = setting.request.study, (setting.subject.model, setting.folder.name)
    records = read(study).records if has_records(study) else ()
    return [record for record in records if (record.name, record.environment.get("run")) == run]


def _failed(setting: Setting, error: Exception) -> WorkError:
    """Record a failure; returns the error to raise."""
    if not setting.request.study.is_dir():  # and a record would make it again
        return deleted(setting.request.study)
    reason = cut_to_line(str(error) if isinstance(error, WorkError) else f"{type(error).__name__}: {error}")
    if setting.processes.leads:
        status: Status = "out_of_memory" if is_out_of_memory(error) else "failed"
        record = failure_record(setting.subject, status, reason, setting.environment())
        append(setting.request.study, [record], writer=setting.request.writer)
    return WorkError(reason)
