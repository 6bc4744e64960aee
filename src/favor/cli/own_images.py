"""After a training run on a user's own images: accuracy, confusion, and the report in the run's folder."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from favor.cli.console import emit_table, stdout_console
from favor.errors import RequestError
from favor.terminal import note, progress_bar
from favor.text import plural

if TYPE_CHECKING:
    from favor.analyze.confusion import Confusion

REPORT = "report.html"
WIDEST_TABLE = 10
_LISTED = 5


def show_own_images(run: Path, device: str | None, workers: int | None, as_json: bool) -> None:
    """Print how well the best checkpoint of a run does on its evaluation images, and write the report."""
    from favor.analyze.confusion import confusion_of
    from favor.atomic_file import write_whole
    from favor.data.broken import BrokenImages
    from favor.machine.device import find_device
    from favor.report.own_images import OwnImages, Picture, own_images_page
    from favor.training.answers import answers_of, picture, worst
    from favor.training.distributed import workers_of_this_process
    from favor.training.predict import open_classifier, own_data

    trained = open_classifier(run, find_device(device))
    data, broken = own_data(run, trained.dataset, trained.classes), BrokenImages()
    with progress_bar() as bar:
        task = bar.add_task("evaluating the best checkpoint", total=len(data.evaluation))
        answers = answers_of(
            trained, data, workers_of_this_process(workers), broken, lambda done: bar.update(task, completed=done)
        )
    confusion = confusion_of(
        trained.classes, [answer.label for answer in answers], [answer.predicted for answer in answers]
    )
    pictures = []
    for answer in worst(answers):
        name, jpeg = picture(data, answer.sample)
        true, predicted = (trained.classes[number] for number in (answer.label, answer.predicted))
        pictures.append(Picture(name, true, predicted, answer.probability, jpeg))
    commands = _commands(run)
    shown = OwnImages(
        trained.model,
        f"{trained.training[0].upper()}{trained.training[1:]}, {trained.img_size} px. "
        f"{plural(len(data.train), 'image')} for training, {len(data.evaluation)} for evaluation.",
        trained.dataset,
        confusion,
        pictures,
        commands,
        broken.lines,
    )
    write_whole(run / REPORT, own_images_page(shown).encode())
    if not as_json:
        _print(f"{trained.model} {trained.training}", confusion)
    note(f"report: {run / REPORT}")
    note(f"classify more images: {commands[0][0]}")


def refuse_other_folder(run: Path, data: str | None) -> None:
    """Refuse a finished run that was trained on another folder with the same name."""
    from favor.data.names import parse
    from favor.training.run_data import read_run_data

    kept, asked = read_run_data(run), None if data is None else parse(data).path
    trained_on = None if kept is None else parse(kept.data).path
    if asked is not None and trained_on is not None and asked.resolve() != trained_on:
        raise RequestError(f"{run} was trained on {trained_on}, another folder of this name; choose another --study")


def warn_if_changed(run: Path) -> None:
    """Warn if the folder of a finished run now has other images than those that the run was trained on."""
    from favor.training.run_data import has_changed, read_run_data

    kept = read_run_data(run)
    if kept is not None and has_changed(kept):
        note(f"warning: the images of {kept.data} have changed since this training; train again with another --study")


def _commands(run: Path) -> list[tuple[str, str]]:
    place = shlex.quote(str(run))
    return [
        (f"favor predict {place} photos/ --csv out.csv", "classify a folder of images"),
        (f"favor evaluate {place} --data folder:PATH", "evaluate it on other images of these classes"),
        (f"favor export {place} -o model.onnx", "export a file that runs without favor"),
    ]


def _print(title: str, confusion: "Confusion") -> None:
    right = sum(row[number] for number, row in enumerate(confusion.counts))
    accuracy = f"{confusion.accuracy:.1f} % (95 % interval: {confusion.low:.1f} to {confusion.high:.1f} %)"
    answer = f"{title}: {right} of {plural(confusion.images, 'evaluation image')} correct, {accuracy}"
    stdout_console().print(answer, markup=False, soft_wrap=True)
    if len(confusion.classes) > WIDEST_TABLE:
        rows = [(true, predicted, str(count)) for true, predicted, count in confusion.mistakes[:_LISTED]]
        emit_table("the most frequent mistakes", ("true class", "answer", "images"), rows, right=("images",))
        return
    lines: list[tuple[str, ...]] = []
    for number, (name, row) in enumerate(zip(confusion.classes, confusion.counts, strict=True)):
        correct = f"{100 * row[number] / sum(row):.0f} %" if any(row) else ""
        lines.append((name, *(str(count or "") for count in row), correct))
    columns = ("true class", *(f"answer {name}" for name in confusion.classes), "correct")
    emit_table("", columns, lines, right=columns[1:])
