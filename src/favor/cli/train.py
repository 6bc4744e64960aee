"""`favor train`, `favor finetune`, `favor evaluate`, `favor predict`: how models learn, and what they have learned."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, emit_table, examples, note, progress_bar
from favor.cli.count import expand
from favor.cli.zoo import AsJson, load_plugins
from favor.errors import RequestError, WorkError

if TYPE_CHECKING:
    from favor.records.schema import Record
    from favor.train.callbacks import StepNews
    from favor.train.recipe import Recipe
    from favor.train.request import TrainingRequest

TRAIN_EXAMPLES = examples(
    ("favor train hybrid_vit_xs4", "scikit-learn's digits, on a laptop, in a minute or two"),
    ("favor train ccl_xs4 --recipe laptop-cifar10", "CIFAR-10 on two cores"),
    (
        "favor train vit_s16 --recipe deit3-pretrain --data imagenet-21k --out study --resume",
        "goes on if it was killed",
    ),
    ("favor train 'vit_*4' linformer_xs4 --minutes 5 --out study", "each model for five minutes"),
    ("favor train vit_xs4 --set lr=5e-4 --set seed=1 --epochs 10", "another learning rate, seed and length"),
    ("torchrun --nproc-per-node=4 -m favor train vit_s16 --recipe deit3-pretrain", "on the four GPUs of a node"),
)
FINETUNE_EXAMPLES = examples(
    ("favor finetune study/runs/RUN --recipe flowers --data flowers102", "the best model of a run, on other classes"),
    ("favor finetune best.safetensors --recipe deit3-finetune --img-size 384", "at another resolution"),
    ("favor finetune weights.pth --model vit_s16 --recipe cars", "weights that favor did not train"),
)
EVALUATE_EXAMPLES = examples(
    ("favor evaluate study/runs/RUN", "the best model of a run, on the data set that it was trained on"),
    ("favor evaluate best.safetensors --data folder:my/photos --json", "on other images of the same classes"),
)
PREDICT_EXAMPLES = examples(
    ("favor predict best.safetensors cat.jpg dog.png", "the five likeliest classes of each image"),
    ("favor predict study/runs/RUN photos/*.jpg --json", "for programs"),
)

RecipeName = Annotated[str, typer.Option("--recipe", help="A recipe's name, or the path of a .yaml file.")]
DataName = Annotated[
    str | None, typer.Option("--data", metavar="NAME[:PATH]", help="The data set; the recipe's own unless given.")
]
Out = Annotated[Path, typer.Option("--out", metavar="STUDY", help="Study folder for records and checkpoints.")]
Epochs = Annotated[int | None, typer.Option("--epochs", help="Short for --set epochs=N.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Another value for a key of the recipe; repeatable."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint, or start if there is none.")]
Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes", help="Train as many steps as fit into this time, by a survey of the speed, not by epochs."
    ),
]
DeviceName = Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:N or mps; the fastest unless given.")]
Threads = Annotated[int | None, typer.Option("--threads", help="On the CPU; PyTorch's own number unless given.")]
Workers = Annotated[
    int | None, typer.Option("--workers", help="Processes that decode images; one a core unless given.")
]
Accumulation = Annotated[
    int | None,
    typer.Option("--accumulation", help="Micro-batches of a step; as few as fit into memory unless given."),
]
SaveEvery = Annotated[
    float, typer.Option("--save-every", help="Seconds between checkpoints, besides each epoch's end.")
]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard files beside the checkpoints.")]


def add_commands(app: typer.Typer) -> None:
    app.command("train", epilog=TRAIN_EXAMPLES)(train_command)
    app.command("finetune", epilog=FINETUNE_EXAMPLES)(finetune_command)
    app.command("evaluate", epilog=EVALUATE_EXAMPLES)(evaluate_command)
    app.command("predict", epilog=PREDICT_EXAMPLES)(predict_command)


def train_command(
    names: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Names or patterns with * and ?; also timm:NAME.")
    ],
    recipe: RecipeName = "laptop-digits",
    data: DataName = None,
    out: Out = Path("favor-runs"),
    epochs: Epochs = None,
    overrides: Overrides = None,
    resume: Resume = False,
    init: Annotated[
        Path | None, typer.Option("--init", metavar="CHECKPOINT", help="Start from these weights, not from fresh ones.")
    ] = None,
    minutes: Minutes = None,
    device: DeviceName = None,
    threads: Threads = None,
    workers: Workers = None,
    accumulation: Accumulation = None,
    save_every: SaveEvery = 300.0,
    tensorboard: TensorBoard = False,
    as_json: AsJson = False,
) -> None:
    """Train models by one recipe: a record an epoch in the study, checkpoints below its `runs`.

    Several models are trained one after the other, each in a process of its own; one that fails is a record with its
    reason. SIGTERM and Ctrl-C save a checkpoint and end; `--resume` goes on. `docs/training.md` tells more.
    """
    from favor.train.request import TrainingRequest

    resolved = _recipe(recipe, epochs, overrides, minutes)
    load_plugins()
    requests = [
        TrainingRequest(
            model=name,
            recipe=resolved,
            data=data or resolved.data,
            out=out,
            resume=resume,
            init=init,
            minutes=minutes,
            device=device,
            threads=threads,
            workers=workers,
            accumulation=accumulation,
            save_every=save_every,
            tensorboard=tensorboard,
        )
        for name in expand(names)
    ]
    _train(requests, as_json, _arguments(recipe, [*(overrides or []), *_epochs(epochs)], requests[0]))


def finetune_command(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A model file, or the folder of a run.")],
    recipe: RecipeName = "deit3-finetune",
    data: DataName = None,
    model: Annotated[
        str | None, typer.Option("--model", help="The model, where the file is not favor's and does not say it.")
    ] = None,
    img_size: Annotated[int | None, typer.Option("--img-size", help="Short for --set img_size=N.")] = None,
    out: Out = Path("favor-runs"),
    epochs: Epochs = None,
    overrides: Overrides = None,
    resume: Resume = False,
    minutes: Minutes = None,
    device: DeviceName = None,
    threads: Threads = None,
    workers: Workers = None,
    accumulation: Accumulation = None,
    save_every: SaveEvery = 300.0,
    tensorboard: TensorBoard = False,
    as_json: AsJson = False,
) -> None:
    """Train a trained model further: on other classes (its head starts anew), at another resolution (resampled)."""
    from favor.train.initial_weights import model_of
    from favor.train.request import TrainingRequest

    sizes = [] if img_size is None else [f"img_size={img_size}"]
    resolved = _recipe(recipe, epochs, [*(overrides or []), *sizes], minutes)
    load_plugins()
    request = TrainingRequest(
        model=model or model_of(checkpoint),
        recipe=resolved,
        data=data or resolved.data,
        out=out,
        resume=resume,
        init=checkpoint,
        minutes=minutes,
        device=device,
        threads=threads,
        workers=workers,
        accumulation=accumulation,
        save_every=save_every,
        tensorboard=tensorboard,
    )
    _train([request], as_json, ())


def evaluate_command(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A model file, or the folder of a run.")],
    data: Annotated[
        str | None, typer.Option("--data", metavar="NAME[:PATH]", help="The one that it was trained on unless given.")
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Images at once.")] = 64,
    device: DeviceName = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a checkpoint, in its inference form: top-1, top-5 and loss over each evaluation image once."""
    from favor.machine.device import find_device
    from favor.train.distributed import device_of_this_process, joined, workers_of_this_process
    from favor.train.predict import evaluate_checkpoint

    load_plugins()
    found = find_device(device_of_this_process(device))
    with joined(found.kind) as processes:
        trained, known, scores = evaluate_checkpoint(
            checkpoint, data, found, processes, batch_size, workers_of_this_process(workers)
        )
        if not processes.leads:
            return
    if as_json:
        about = {"checkpoint": str(checkpoint), "model": trained.model, "dataset": known.name, "epochs": trained.epochs}
        units = {"top1": "%", "top5": "%", "loss": "nat"}
        values = {name: {"value": getattr(scores, name), "unit": unit} for name, unit in units.items()}
        emit_json({**about, "img_size": trained.img_size, "images": scores.images, **values})
        return
    emit_table(
        f"{trained.model} after {trained.epochs:g} epochs of {trained.dataset}, {trained.img_size} px",
        ("data", "images", "top-1", "top-5", "loss"),
        [(known.name, str(scores.images), f"{scores.top1:.2f} %", f"{scores.top5:.2f} %", f"{scores.loss:.4f} nat")],
        right=("images", "top-1", "top-5", "loss"),
    )


def predict_command(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A model file, or the folder of a run.")],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files.")],
    device: DeviceName = None,
    as_json: AsJson = False,
) -> None:
    """Say what images show: the five likeliest classes of each, with their probabilities."""
    from favor.machine.device import find_device
    from favor.train.predict import predict

    load_plugins()
    trained, predictions = predict(checkpoint, images, find_device(device))
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
    elif any(one.guesses for one in predictions):
        places = [str(place) for place in range(1, 1 + max(len(one.guesses) for one in predictions))]
        emit_table(
            f"{trained.model} after {trained.epochs:g} epochs of {trained.dataset}",
            ("image", *places),
            [
                (one.image, *(f"{guess.name} {100 * guess.probability:.1f} %" for guess in one.guesses))
                for one in predictions
                if one.guesses
            ],
        )
    failed = [one for one in predictions if one.reason]
    for one in failed:
        note(f"{one.image}: not an image that can be read ({one.reason})")
    if failed:
        raise typer.Exit(1)


def _recipe(name: str, epochs: int | None, overrides: list[str] | None, minutes: float | None) -> "Recipe":
    from favor.train.recipe import load_recipe

    if minutes is not None and epochs is not None:
        raise RequestError("--minutes and --epochs both say how long; give one of them")
    return load_recipe(name, [*(overrides or []), *_epochs(epochs)])


def _epochs(epochs: int | None) -> list[str]:
    return [] if epochs is None else [f"epochs={epochs}"]


def _arguments(recipe: str, overrides: list[str], request: "TrainingRequest") -> list[str]:
    """The same command for a process that trains one of several models, but for the model's name."""
    from favor.zoo.registry import loaded_plugins

    plugins = [word for file in loaded_plugins() for word in ("--plugin", str(file))]
    options = {
        "--recipe": recipe,
        "--data": request.data,
        "--out": request.out,
        "--init": request.init,
        "--minutes": request.minutes,
        "--device": request.device,
        "--threads": request.threads,
        "--workers": request.workers,
        "--accumulation": request.accumulation,
        "--save-every": request.save_every,
    }
    given = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    given += [word for override in overrides for word in ("--set", override)]
    given += [name for name, wanted in (("--resume", request.resume), ("--tensorboard", request.tensorboard)) if wanted]
    return [*plugins, "train", *given]


def _train(requests: "list[TrainingRequest]", as_json: bool, arguments: Sequence[str]) -> None:
    """Train all that is asked for and print the last record of each."""
    from favor.data.names import parse
    from favor.train.distributed import is_started_by_torchrun
    from favor.train.tensorboard_log import require_tensorboard
    from favor.zoo.registry import card

    parse(requests[0].data)
    for request in requests:
        size = request.recipe.img_size
        card(request.model).image_sizes.check(request.model, (size, size))
    if requests[0].tensorboard:
        require_tensorboard()
    if len(requests) == 1:
        records = [_train_here(requests[0])]
    elif is_started_by_torchrun():
        records = [_train_or_say(request) for request in requests]
    else:
        records = []
        for place, request in enumerate(requests, 1):
            note(f"[{place}/{len(requests)}] {request.model}")
            records.append(_train_apart(request, arguments))
    known = [record for record in records if record is not None]
    _print(known, as_json)
    if any(record.status != "ok" for record in known) or len(known) < len(records):
        raise typer.Exit(1)


def _train_here(request: "TrainingRequest") -> "Record | None":
    from favor.train.run import train

    with Spectator(request.model) as audience:
        outcome = train(request, audience)
    if outcome.ending == "stopped":
        note(f"stopped by {outcome.stopped_by}; saved in {outcome.folder}, and --resume goes on from there")
        raise typer.Exit(130 if outcome.stopped_by == "SIGINT" else 0)
    return outcome.record


def _train_or_say(request: "TrainingRequest") -> "Record | None":
    """For processes that torchrun has started: no process of its own, so only an error lets the next one go on."""
    try:
        return _train_here(request)
    except WorkError as error:
        note(f"{request.model}: {error}")
        return None


def _train_apart(request: "TrainingRequest", arguments: Sequence[str]) -> "Record | None":
    from favor.train.several import Stopped, command_for, train_apart

    try:
        record = train_apart(request, command_for(request.model, arguments))
    except Stopped as stopped:
        note(f"stopped by {stopped.signal.name}; --resume goes on with {request.model}")
        raise typer.Exit(130 if stopped.signal.name == "SIGINT" else 0) from None
    if record is not None and record.status != "ok":
        note(f"{request.model}: {record.status}: {record.reason}")
    return record


def _print(records: "list[Record]", as_json: bool) -> None:
    if as_json:
        from favor.records.schema import to_data

        emit_json([to_data(record) for record in records])
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
        title = f"{conditions['pipeline']} on {conditions['dataset']}, {conditions['img_size']} px"
        emit_table(title, ("model", "epochs", *titles, "status"), rows, right=("epochs", *titles))


class Spectator:
    """Shows a training: a bar on a terminal, and a line an epoch."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._bar = progress_bar()
        self._task = self._bar.add_task(model, total=None)

    def __enter__(self) -> "Spectator":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def note(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def stepped(self, news: "StepNews") -> None:
        top1 = "" if news.top1 is None else f", top-1 {news.top1:.1f} %"
        text = f"{self._model}: epoch {news.epochs:.2f}, loss {news.loss:.3f}{top1}, {news.images_per_second:.0f} img/s"
        self._bar.update(self._task, description=text, completed=news.step, total=news.steps)

    def evaluated(self, record: "Record", news: "StepNews") -> None:
        top1, top5, loss = (record.metrics[name].value for name in ("top1", "top5", "loss"))
        self.note(
            f"{self._model} epoch {record.conditions['epochs']}: loss {news.loss:.4f}, top-1 {top1:.2f} %, "
            f"top-5 {top5:.2f} %, test loss {loss:.4f}, {news.images_per_second:.0f} img/s, {_left(news)} left"
        )


def _left(news: "StepNews") -> str:
    seconds = round(news.seconds_left)
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds % 60} s"
