"""`favor train`, `favor finetune`, `favor evaluate`, `favor predict`: training models and using checkpoints."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from favor.cli.console import emit_json, emit_records, emit_table, examples
from favor.cli.options import add_command
from favor.cli.own_images import refuse_other_folder, show_own_images, warn_if_changed
from favor.cli.running import Wait, end
from favor.cli.zoo import AsJson, ModelNames, load_plugins
from favor.errors import RequestError, WorkError
from favor.machine.openmp_wait import wait_asleep
from favor.terminal import note, progress_bar
from favor.text import first_few, plural
from favor.zoo.cards import TIMM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from favor.data.augment import Batch
    from favor.data.loader import EvaluationLoader
    from favor.records.schema import Record
    from favor.study.resolved import ResolvedStudy
    from favor.training.callbacks import StepNews
    from favor.training.predict import Prediction
    from favor.training.request import TrainingRequest
    from favor.zoo.checkpoints import Checkpoint

TRAIN_EXAMPLES = examples(
    ("favor train hybrid_vit_xs4", "scikit-learn's digits, on a laptop, in a minute or two"),
    ("favor train ccl_xs4 --recipe laptop-cifar10", "CIFAR-10 on two cores"),
    (
        "favor train vit_s16 --recipe deit3-pretrain --data imagenet-21k --study study --resume",
        "run it again to continue if it was killed",
    ),
    ("favor train 'vit_*4' linformer_xs4 --minutes 5 --study study", "each model for five minutes"),
    ("favor train 'linformer_xs4(k=8)'", "with other settings, in quotes because of the shell"),
    ("favor train vit_xs4 --set lr=5e-4 --set seed=1 --epochs 10", "with another learning rate, seed and length"),
    ("favor train vit_xs4 --log wandb --log tensorboard", "also log curves to Weights & Biases and TensorBoard"),
    ("torchrun --nproc-per-node=4 -m favor train vit_s16 --recipe deit3-pretrain", "on the four GPUs of a node"),
)
FINETUNE_EXAMPLES = examples(
    (
        "favor finetune study/runs/RUN --recipe flowers --data flowers102",
        "the best checkpoint of a run, on other classes",
    ),
    ("favor finetune best.safetensors --recipe deit3-finetune --img-size 384", "at another resolution"),
    ("favor finetune vit_s16 --pretrained --data folder:photos", "published weights, on your own photos"),
    ("favor finetune weights.pth --model vit_s16 --recipe cars", "weights that favor did not train"),
)
EVALUATE_EXAMPLES = examples(
    ("favor evaluate study/runs/RUN", "the best checkpoint of a run, on the dataset it was trained on"),
    ("favor evaluate vit_s16 --pretrained --data imagenet-1k", "published weights, with their own preprocessing"),
    (
        "favor evaluate resnet50 --weights a1_in1k --img-size 288",
        "at a larger size, with the crop that the weights define for it",
    ),
    ("favor evaluate best.safetensors --data folder:my/photos --json", "on other images of the same classes"),
    ("favor evaluate int8.onnx", "a file that was exported with favor export"),
)
PREDICT_EXAMPLES = examples(
    ("favor predict best.safetensors cat.jpg dog.png", "the five most likely classes of each image"),
    ("favor predict vit_s16 --pretrained photo.jpg", "published weights, ImageNet's classes"),
    ("favor predict study/runs/RUN photos/ --csv out.csv", "all images in a folder and its subfolders"),
    ("favor predict study/runs/RUN photos/*.jpg --json", "for programs"),
)

PREDICTION_BATCH, PREDICTION_BATCH_ELSEWHERE = {"cpu": 16}, 64
_MOST_NAMED = 5
_NORMALIZATION = ("mean=", "std=", "interpolation=")

Study = Annotated[Path, typer.Option("--study", metavar="DIR", help="Study folder for records and checkpoints.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint, if there is one.")]
DeviceName = Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:N or mps (default: the fastest).")]
Workers = Annotated[int | None, typer.Option("--workers", help="Processes that decode images (default: one per core).")]

CheckpointOrModel = Annotated[
    Path,
    typer.Argument(
        metavar="CHECKPOINT", help="A checkpoint file, the folder of a run, or with --pretrained a model name."
    ),
]
Pretrained = Annotated[
    bool, typer.Option("--pretrained", help="Use the model's published weights; `favor show NAME` lists them.")
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="TAG|FILE",
        help="Tag of the published weights, or a file with weights in timm's layout; implies --pretrained.",
    ),
]
PublishedSize = Annotated[
    int | None,
    typer.Option(
        "--img-size",
        metavar="PIXELS",
        help="Image size for published weights (default: the size they were trained at).",
    ),
]
Trained = Annotated[
    Path,
    typer.Argument(
        metavar="CHECKPOINT",
        help="A checkpoint, the folder of a run, an exported .onnx or .xml file, or with --pretrained a model name.",
    ),
]


def add_commands(app: typer.Typer) -> None:
    add_command(app, "train", train_command, TRAIN_EXAMPLES, "train", recipe="laptop-digits")
    add_command(app, "finetune", finetune_command, FINETUNE_EXAMPLES, "train", without=["init"])
    app.command("evaluate", epilog=EVALUATE_EXAMPLES)(evaluate_command)
    app.command("predict", epilog=PREDICT_EXAMPLES)(predict_command)


def train_command(
    names: ModelNames,
    study: Study = Path("runs/train"),
    pretrained: Pretrained = False,
    weights: Weights = None,
    resume: Resume = False,
    wait: Wait = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Train models with one recipe, adding a record per epoch and checkpoints to a study.

    Models are trained one after another, each in its own process. If one fails, the reason is recorded and the next
    one is trained. On SIGTERM or Ctrl-C, favor saves a checkpoint and stops; `--resume` continues from it. See
    `docs/training.md`.
    """
    load_plugins()
    if pretrained or weights is not None:
        from favor.zoo.matching import matching_models

        models = matching_models(names)
        if len(models) != 1 or options["init"] is not None:
            raise RequestError("--pretrained starts one model from its own weights; name one model, and no --init")
        options |= {"init": _init_of(_checkpoint_for(models[0], weights))}
    train_models(names, study, resume, wait, as_json, options)


def _checkpoint_for(model: str, tag: str | None, img_size: int | None = None) -> "Checkpoint":
    """The published weights of a model by any of its names."""
    from favor.zoo.checkpoints import checkpoint
    from favor.zoo.registry import card

    chosen = checkpoint(card(model).name, tag, img_size)
    if chosen.borrowed:
        note(f"{model} starts from {chosen.name}, which was trained without reducing tokens")
    return chosen


def _init_of(chosen: "Checkpoint") -> str:
    """A checkpoint as `--init` takes it."""
    return str(chosen.file or f"{TIMM}{chosen.name}")


def finetune_command(
    checkpoint: CheckpointOrModel,
    model: Annotated[
        str | None, typer.Option("--model", help="Model name, for a file that favor did not write.")
    ] = None,
    img_size: Annotated[int | None, typer.Option("--img-size", help="Short for --set img_size=N.")] = None,
    pretrained: Pretrained = False,
    weights: Weights = None,
    study: Study = Path("runs/train"),
    resume: Resume = False,
    wait: Wait = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Fine-tune a checkpoint on other classes (with a new head) or at another image size (positions are resampled).

    On a folder of images (`--data folder:PATH`, with one folder per class), the default recipe is `transfer`, adapted
    to the number of images, and the run ends with a report. Otherwise the default is `deit3-finetune`. Image size and
    normalization are those of the weights, unless --img-size or --set override them; with --recipe, a favor checkpoint
    keeps only its normalization.
    """
    wait_asleep(os.environ)
    from favor.training.initial_weights import model_of
    from favor.training.preprocessing import carried_by, recipe_keys_for
    from favor.training.transfer_recipe import TRANSFER, fitted_to

    load_plugins()
    given = [*(options["set"] or []), *([] if img_size is None else [f"img_size={img_size}"])]
    init, name = str(checkpoint), model
    chosen_recipe, on_folder = options["recipe"], (options["data"] or "").startswith("folder:")
    recipe = chosen_recipe or (TRANSFER if on_folder else "deit3-finetune")
    if pretrained or weights is not None:
        if model is not None:
            raise RequestError("--model names the model of a file; with --pretrained the argument is the model")
        name = str(checkpoint)
        chosen = _checkpoint_for(name, weights, img_size)
        init, keys = _init_of(chosen), recipe_keys_for(chosen, img_size)
        if chosen.crop_mode != "center":
            note(f"fine-tuning crops the center of images; {chosen.name} was evaluated with timm's {chosen.crop_mode}")
    else:
        _refuse_model_name(checkpoint)
        name = model or model_of(checkpoint)
        carried = carried_by(checkpoint, name)
        keys = [key for key in carried.keys if not chosen_recipe or key.startswith(_NORMALIZATION)]
        if carried.note and keys:
            note(carried.note)
    if recipe == TRANSFER:
        epochs = [] if options["epochs"] is None else [f"epochs={options['epochs']}"]
        keys += fitted_to(count_images(options["data"]), [*given, *epochs])
    overridden = {entry.partition("=")[0].strip() for entry in given}
    given += [entry for entry in keys if entry.partition("=")[0] not in overridden]
    train_models([name], study, resume, wait, as_json, options | {"set": given, "init": init, "recipe": recipe})


def _refuse_model_name(checkpoint: Path) -> None:
    """Refuse the name of a model where a checkpoint is wanted."""
    from favor.zoo.registry import card

    if checkpoint.exists():
        return
    try:
        name = card(str(checkpoint)).name
    except RequestError:
        return
    raise RequestError(f"{checkpoint} is a model, not a checkpoint; for published weights of {name} add --pretrained")


def count_images(data: str | None) -> int:
    """The number of training images, after saying what was found."""
    from favor.data.opening import open_data

    dataset = open_data(data or "folder")
    split = f"{plural(len(dataset.train), 'image')} for training, {len(dataset.evaluation)} for evaluation"
    note(f"{data}: {dataset.num_classes} classes, {split}")
    evaluated = set(dataset.evaluation.labels.tolist())
    others = [name for label, name in enumerate(dataset.classes) if label not in evaluated]
    if others:
        note(f"warning: the accuracy leaves out {first_few(others, _MOST_NAMED)}: no evaluation images; add some")
    return len(dataset.train)


def evaluate_command(
    checkpoint: Trained,
    data: Annotated[
        str | None, typer.Option("--data", metavar="NAME[:PATH]", help="Dataset (default: the one it was trained on).")
    ] = None,
    pretrained: Pretrained = False,
    weights: Weights = None,
    img_size: PublishedSize = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Images per batch.")] = 64,
    device: DeviceName = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a checkpoint in its inference form: top-1, top-5 and loss on the evaluation images.

    For a run on a folder of images, these are the run's own evaluation images. For another folder (`--data`), and with
    `--pretrained`, they are those in `val/`, or all images if the folder has no split; `train/` is not needed.
    """
    wait_asleep(os.environ)
    from favor.analyze.intervals import accuracy_interval
    from favor.machine.device import find_device
    from favor.training.distributed import device_of_this_process, joined, workers_of_this_process
    from favor.training.predict import evaluate_checkpoint

    load_plugins()
    if not (weights or pretrained):
        _refuse_model_name(checkpoint)
    chosen = find_device(device_of_this_process(device))
    with joined(chosen.kind) as processes:
        trained, dataset, scores = evaluate_checkpoint(
            checkpoint,
            data,
            chosen,
            processes,
            batch_size,
            workers_of_this_process(workers),
            weights or pretrained,
            img_size,
            _with_bar if processes.leads else iter,
        )
        if not processes.leads:
            return
    low, high = accuracy_interval(scores.top1, scores.images)
    if as_json:
        source = {"checkpoint": str(checkpoint), "model": trained.model}
        about = source | {"dataset": dataset.name, "place": dataset.place, "epochs": trained.epochs}
        units = {"top1": "%", "top5": "%", "loss": "nat"}
        values = {name: {"value": getattr(scores, name), "unit": unit} for name, unit in units.items()}
        values["top1"] |= {"low": low, "high": high}
        how = {"img_size": trained.img_size, "precision": trained.precision, "images": scores.images}
        emit_json({**about, **how, **values})
        return
    row = {
        "data": f"{dataset.name}:{dataset.place}" if dataset.name == "folder" else dataset.name,
        "images": str(scores.images),
        "top-1": f"{scores.top1:.2f} %",
        "95 % interval": f"{low:.2f} to {high:.2f} %",
        "top-5": f"{scores.top5:.2f} %",
        "loss": f"{scores.loss:.4f} nat",
    }
    title = f"{trained.model} {trained.training}, {trained.img_size} px, {trained.precision}"
    emit_table(title, tuple(row), [tuple(row.values())], right=tuple(row)[1:])


def _with_bar(batches: "EvaluationLoader") -> "Iterator[Batch]":
    """The batches, with a progress bar over the images of all processes."""
    with progress_bar() as bar:
        task = bar.add_task("evaluating", total=len(batches.source))
        for batch in batches:
            yield batch
            bar.advance(task, len(batch) * batches.share.processes)


def predict_command(
    checkpoint: Trained,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files, or folders of them.")],
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write the predictions to a CSV file.")
    ] = None,
    pretrained: Pretrained = False,
    weights: Weights = None,
    img_size: PublishedSize = None,
    device: DeviceName = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Classify images: the five most likely classes of each, with probabilities.

    Images that cannot be read are reported, one line each, and the exit code is then 1.
    """
    wait_asleep(os.environ)
    from favor.atomic_file import require_writable
    from favor.machine.device import find_device
    from favor.training.distributed import workers_of_this_process
    from favor.training.predict import best_prediction_batch, images_in, open_classifier, predict

    load_plugins()
    if csv is not None:
        require_writable(csv)
    if not (weights or pretrained):
        _refuse_model_name(checkpoint)
    chosen = find_device(device)
    files, predictions = images_in(images)  # before weights are downloaded
    trained = open_classifier(checkpoint, chosen, weights or pretrained, img_size)
    with progress_bar() as bar:
        searching = bar.add_task("looking for the best batch size", total=None)
        most = PREDICTION_BATCH.get(chosen.kind, PREDICTION_BATCH_ELSEWHERE)
        batch_size = best_prediction_batch(trained, len(files), most)
        bar.remove_task(searching)
        # A few images are decoded sooner than a process is started.
        processes = workers_of_this_process(workers) if len(files) > batch_size else 0
        for one in bar.track(predict(trained, files, batch_size, processes), len(files), description="classifying"):
            predictions.append(one)
    if csv is not None:
        _write_csv(csv, predictions)
    if as_json:
        emit_json(
            [
                {
                    "image": one.image,
                    "predictions": [{"class": guess.name, "probability": guess.probability} for guess in one.guesses],
                    "reason": one.reason,
                }
                for one in predictions
            ]
        )
    elif csv is None and any(one.guesses for one in predictions):
        ranks = [str(rank) for rank in range(1, 1 + max(len(one.guesses) for one in predictions))]
        emit_table(
            f"{trained.model} {trained.training}",
            ("image", *ranks),
            [
                (one.image, *(f"{guess.name} {100 * guess.probability:.1f} %" for guess in one.guesses))
                for one in predictions
                if one.guesses
            ],
        )
    failed = [one for one in predictions if one.reason]
    for one in failed:
        note(f"{one.image}: cannot be read ({one.reason})")
    if csv is not None:
        note(f"{csv}: {plural(len(predictions) - len(failed), 'image')} classified, {len(failed)} not")
    if failed:
        raise typer.Exit(1)


def _write_csv(file: Path, predictions: "list[Prediction]") -> None:
    """One line per image: classes with probabilities, the most likely first, or why it could not be read."""
    import pandas as pd

    from favor.atomic_file import write_whole
    from favor.records.export import to_csv

    most = max((len(one.guesses) for one in predictions), default=0)
    rows: list[dict[str, object]] = []
    for one in predictions:
        row: dict[str, object] = {"image": one.image}
        for rank, guess in enumerate(one.guesses, 1):
            row |= {f"class_{rank}": guess.name, f"probability_{rank}": guess.probability}
        rows.append(row | {"reason": one.reason})
    ranked = [f"{what}_{rank}" for rank in range(1, 1 + most) for what in ("class", "probability")]
    table = pd.DataFrame(rows, columns=["image", *ranked, "reason"], dtype=object)
    write_whole(file, to_csv(table).encode(errors="surrogateescape"))


def train_models(
    names: list[str], study: Path, resume: bool, wait: bool, as_json: bool, options: dict[str, Any]
) -> None:
    """Train the models and print the last record of each."""
    from favor.study.options import study_from_options, train_options
    from favor.training.distributed import is_one_of_several

    machine = {name: options[name] for name in ("device", "threads")}
    of_study = machine | {"attention": options["attention"]}
    of_training = {name: value for name, value in options.items() if name not in of_study}
    request = study_from_options("train", names, ("accuracy",), of_study, train=train_options(of_training))
    from favor.study.running import run_request

    if is_one_of_several():
        _train_here(request, study, resume, wait, machine, as_json)
        return
    ended = run_request(request, study, repeat="failed" if resume else None, wait=wait, resume=resume)
    if ended.refused and len(ended.jobs) == 1:
        raise ended.refused[0]
    own = [record for record in ended.records if _is_of_own_images(record, study)]
    for record in own:
        refuse_other_folder(study / "runs" / str(record.environment["run"]), options["data"])
    _print(ended.records if as_json else [record for record in ended.records if record not in own], as_json)
    for record in own:
        run = study / "runs" / str(record.environment["run"])
        if not ended.jobs:
            warn_if_changed(run)
        show_own_images(run, options["device"], options["workers"], as_json)
    end(ended, f"--resume, or `favor resume {study}`, continues from there")


def _is_of_own_images(record: "Record", study: Path) -> bool:
    """Whether a record is the result of a training run on a folder of images that is still known."""
    is_result = record.status == "ok" and record.conditions.get("final") is True
    of_folder = is_result and str(record.conditions["dataset"]).startswith("folder:")
    return of_folder and (study / "runs" / str(record.environment["run"]) / "data.json").is_file()


def _train_here(
    resolved: "ResolvedStudy", study: Path, resume: bool, wait: bool, machine: dict[str, Any], as_json: bool
) -> None:
    """Train in this process, which torchrun or Slurm started; a model that fails is skipped."""
    from favor.study.plan import jobs_of
    from favor.study.progress import records_of
    from favor.study.session import extend, working_in
    from favor.study.train_jobs import TrainJob, stage_request

    if os.environ["RANK"] == "0":
        # Not longer: other GPUs may train other models of the study.
        with working_in(study, wait):
            extend(resolved, study)
    records = []
    for job in jobs_of(resolved):
        assert isinstance(job, TrainJob)  # noqa: S101 - the request has no other phase
        request = stage_request(job, (job.train,), study, records_of(study), resume)
        # Each process finds its own GPU.
        records.append(_train_or_say(replace(request, **machine)))
    finished = [record for record in records if record is not None]
    _print(finished, as_json)
    if len(finished) < len(records):
        raise typer.Exit(1)


def _train_or_say(request: "TrainingRequest") -> "Record | None":
    from favor.training.run import train

    try:
        outcome = train(request, _Lines(request.model))
    except WorkError as error:
        note(f"{request.model}: {error}")
        return None
    if outcome.ending == "stopped":
        note(f"stopped by {outcome.stopped_by}; saved in {outcome.folder}: --resume continues from there")
        raise typer.Exit(130 if outcome.stopped_by == "SIGINT" else 0)
    return outcome.record


class _Lines:
    """Shows a training run of several processes: one line per epoch."""

    def __init__(self, model: str) -> None:
        self._model = model

    def note(self, text: str) -> None:
        note(text)

    def stepped(self, news: "StepNews") -> None:
        """Steps are not shown."""

    def evaluated(self, record: "Record", news: "StepNews") -> None:
        from favor.training.worker import epoch_line

        note(epoch_line(self._model, record, news))


def _print(records: "list[Record]", as_json: bool) -> None:
    if as_json:
        emit_records(records)
        return
    shown = {
        "top1": "top-1",
        "top5": "top-5",
        "loss": "loss",
        "train_throughput": "speed",
        "train_step_time_end_to_end": "step",
        "train_memory": "memory",
        "train_hours_per_epoch": "epoch",
    }
    from favor.units import format_quantity

    titles = tuple(shown.values())
    rows = [
        (
            record.name,
            f"{record.conditions.get('epochs', '')}",
            *(
                format_quantity(record.metrics[name].value, record.metrics[name].unit) if name in record.metrics else ""
                for name in shown
            ),
            record.status,
        )
        for record in records
    ]
    if rows:
        conditions = records[0].conditions
        title = f"{conditions['recipe.name']} on {conditions['dataset']}, {conditions['recipe.img_size']} px"
        emit_table(title, ("model", "epochs", *titles, "status"), rows, right=("epochs", *titles))
