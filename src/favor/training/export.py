"""From a model's name or a checkpoint to an exported file with its card, tested against eager mode."""

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from favor.data.augment import Normalization
from favor.data.class_folders import IMAGE_ENDINGS
from favor.data.folder import image_list
from favor.data.framing import Framing, center_cut
from favor.data.image_files import upright
from favor.data.names import find, parse
from favor.data.opening import open_data
from favor.data.sources import DataSet, ImageSource
from favor.errors import RequestError, WorkError
from favor.runtime.card import ExportCard, SelfTest, card_file, checksums
from favor.runtime.compare import Comparison, compare
from favor.runtime.export import check_export, export_file
from favor.runtime.exported import files_of
from favor.runtime.matrix import refuse_known_failure
from favor.runtime.names import ENDINGS, OPENERS, RUNTIMES, versions
from favor.runtime.opening import open_file
from favor.runtime.session import Choice
from favor.runtime.torch_session import TorchSession
from favor.training.initial_weights import checkpoint_file
from favor.training.predict import IMAGENET, load_published, load_trained, own_data, run_data_of
from favor.training.preprocessing import framing_of, normalization_for, normalization_of
from favor.training.state import Trained
from favor.version import __version__
from favor.zoo.cards import HUB
from favor.zoo.checkpoints import imagenet_class_names
from favor.zoo.registry import card, create_model

SEED = 0
CALIBRATION_IMAGES = 128
TEST_IMAGES, TEST_IMAGES_INT8 = 64, 512
"""Images in the self-test; estimating a change in accuracy (int8) takes more of them than a deviation does."""
TOLERANCES = {"fp32": 1e-3, "fp16": 5e-2}
"""The largest deviations that rounding explains, as shares of the largest output; int8 has no such limit."""
_BATCH = 16
GENERATED = "synthetic"


@dataclass(frozen=True)
class ExportRequest:
    """What to export. `data` and `calibration` are `NAME[:PATH]`; the model's own dataset where they are None.

    With `pretrained`, `source` is the name of a model, and its published weights are used: the default ones or a tag's.
    A named model takes images of any size, by default its own or that of the weights.
    """

    source: str
    file: Path
    form: str = "onnx"
    precision: str = "fp32"
    dynamic_batch: bool = False
    data: str | None = None
    calibration: str | None = None
    test_images: int | None = None
    pretrained: bool | str = False
    img_size: int | None = None


@dataclass(frozen=True)
class Subject:
    """The model to export, its preprocessing, where it is from, and its classes.

    `trained` is what a checkpoint says. The dataset and the classes are missing where the weights are fresh.
    """

    model: nn.Module
    name: str
    framing: Framing
    normalization: Normalization
    source: str
    trained: Trained | None = None
    dataset: str | None = None
    classes: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()

    def images(self, split: ImageSource, count: int) -> tuple[Tensor, Tensor]:
        """This number of images, spread over a split, preprocessed for the model, and their labels."""
        return images_of(split, count, self.framing, self.normalization)


def images_of(split: ImageSource, count: int, framing: Framing, normalization: Normalization) -> tuple[Tensor, Tensor]:
    """This number of images, spread over a split, preprocessed for a model, and their labels."""
    samples = np.unique(np.linspace(0, len(split) - 1, min(count, len(split))).astype(np.int64))
    fetched = split.fetch(samples, center_cut(framing, len(samples)))
    if not len(fetched.samples):
        raise WorkError(f"none of {len(samples)} images could be read ({fetched.broken[0].reason})")
    labels = torch.from_numpy(split.labels[fetched.samples])
    return normalization(fetched.images.float().div_(255)), labels


def subject_of(checkpoint: Path) -> Subject:
    """The model of a checkpoint or of a run's folder."""
    trained, model = load_trained(checkpoint, torch.device("cpu"))
    recipe = trained.recipe
    return Subject(
        model,
        trained.model,
        framing_of(recipe),
        normalization_of(recipe),
        f"{checkpoint_file(checkpoint).name} of run {trained.run}, step {trained.step}",
        trained,
        trained.dataset,
        trained.classes,
    )


def own_images(checkpoint: Path, trained: Trained) -> DataSet:
    """The dataset that a checkpoint was trained on, for int8; where it is not here, others have to be named."""
    try:
        return own_data(checkpoint, trained.dataset, trained.classes)
    except RequestError as error:
        raise RequestError(
            f"int8 needs images to calibrate with, and those that {checkpoint} was trained on ({trained.dataset}) are "
            "not available; name others with --calibration NAME[:PATH]"
        ) from error


def export(request: ExportRequest) -> ExportCard:
    """Write a model to a file with its card beside it, if its outputs are those of eager mode."""
    check_export(request.form, request.precision, request.file)
    if request.calibration is not None and request.precision != "int8":
        raise RequestError("only int8 is calibrated; add --precision int8, or leave out --calibration")
    test_images = request.test_images
    if test_images is None:
        test_images = TEST_IMAGES_INT8 if request.precision == "int8" else TEST_IMAGES
    if test_images < 1:
        raise RequestError(f"the self-test needs 1 image or more, not {test_images}")
    subject, calibration = _subject(request), None
    if request.precision == "int8":
        calibration = _calibration_set(request, subject)
    tested_on = _test_set(request, subject)
    images, labels = subject.images(tested_on.evaluation, test_images)
    example = images[:1].repeat(2 if request.dynamic_batch else 1, 1, 1, 1)  # a batch of one is never dynamic
    batches = subject.images(calibration.train, CALIBRATION_IMAGES)[0].split(1) if calibration else ()
    # The file is tested in a folder beside its place and then moved: one that fails must not replace an older one.
    with tempfile.TemporaryDirectory(dir=request.file.parent, prefix=f".{request.file.stem}-") as beside:
        untested = replace(request, file=Path(beside) / request.file.name)
        export_file(
            subject.model,
            example,
            untested.file,
            request.form,
            request.precision,
            dynamic_batch=request.dynamic_batch,
            calibration=batches,
        )
        expected = _outputs(TorchSession(subject.model, example, Choice()).run, images, _BATCH)
        outputs = _outputs(open_exported(untested), images, _BATCH if request.dynamic_batch else 1)
        knows_labels = bool(subject.classes) and subject.classes == tested_on.classes
        comparison = compare(expected, outputs, labels if knows_labels else None)
        if comparison.relative > TOLERANCES.get(request.precision, math.inf):
            raise WorkError(
                f"{request.file}: not written, since its outputs would differ from eager mode by "
                f"{comparison.relative:.1e} of the largest one, more than rounding explains; use another --runtime"
            )
        calibrated_on = f"{len(batches)} of {calibration.name}" if calibration else None
        described = _card(untested, subject, tested_on, calibrated_on, comparison, num_classes=expected.shape[1])
        card_file(untested.file).write_text(described.model_dump_json(indent=2) + "\n", encoding="utf-8")
        _move(untested.file, request.file)
    return described


def _move(tested: Path, file: Path) -> None:
    """Give the files of an exported model their names; the card last, since it has the checksums of the others."""
    try:
        for part in files_of(tested):
            part.replace(file.with_suffix(part.suffix))
        card_file(tested).replace(card_file(file))
    except OSError as error:
        raise WorkError(f"cannot write {file}: {error.strerror}") from error


def _subject(request: ExportRequest) -> Subject:
    """What the source names: a checkpoint or a run's folder where there is one, a model of the zoo otherwise."""
    path = Path(request.source)
    endings = (".safetensors", ".pth", ".pt", *ENDINGS.values())
    is_checkpoint = path.exists() or request.source.startswith(HUB) or path.suffix in endings
    if is_checkpoint and request.pretrained is False:
        if request.img_size is not None:
            raise RequestError(f"{path} has its own image size; --img-size is for a model's name")
        subject = subject_of(path)
        _refuse_known_failure(request, subject.name)
        return subject
    known = card(request.source)
    _refuse_known_failure(request, known.name)
    if request.precision == "int8" and request.calibration is None:
        raise RequestError(
            f"int8 needs images to calibrate with; name a dataset with --calibration NAME[:PATH], or export a "
            f"checkpoint of {known.name}, which has its own"
        )
    if request.pretrained is not False:
        tag = None if request.pretrained is True else request.pretrained
        return _published(request.source, tag, request.img_size)
    torch.manual_seed(SEED)
    side = known.image_sizes.default if request.img_size is None else request.img_size
    known.image_sizes.check(known.name, (side, side))
    framing = Framing(side)
    network = create_model(known.name, img_size=framing.img_size)
    return Subject(network, known.name, framing, Normalization(), f"fresh weights, seed {SEED}")


def _published(name: str, tag: str | None, img_size: int | None) -> Subject:
    """A model with published weights."""
    found = load_published(name, tag, img_size)
    return Subject(
        found.network,
        found.name,
        found.framing,
        normalization_for(found.weights),
        found.source,
        dataset=IMAGENET,
        classes=found.classes,
        class_names=imagenet_class_names(),
    )


def _refuse_known_failure(request: ExportRequest, model: str) -> None:
    if request.form in OPENERS:
        refuse_known_failure(model, OPENERS[request.form])


def _calibration_set(request: ExportRequest, subject: Subject) -> DataSet:
    if request.calibration is not None:
        return _images_of_option("--calibration", request.calibration)
    assert subject.trained is not None  # noqa: S101 - `_subject` refuses other weights without images
    return own_images(Path(request.source), subject.trained)


def _test_set(request: ExportRequest, subject: Subject) -> DataSet:
    """The images to compare on: those asked for, the model's own, ImageNet's, or else generated ones."""
    if request.data is not None:
        return _images_of_option("--data", request.data)
    if subject.trained is None:
        return open_data(IMAGENET if find(parse(IMAGENET)) else GENERATED)
    name = subject.trained.dataset.partition("[")[0]
    is_here = run_data_of(Path(request.source)) is not None if name.startswith("folder:") else _is_here(name)
    if not is_here:
        return open_data(GENERATED)
    return own_data(Path(request.source), subject.trained.dataset, subject.trained.classes)


def _images_of_option(option: str, text: str) -> DataSet:
    try:
        return named_images(text)
    except RequestError as error:
        raise RequestError(f"{option}: {error}") from error


def named_images(text: str) -> DataSet:
    """The dataset `NAME[:PATH]`; a folder of images without class folders will do, since labels are not needed."""
    folder = parse(text).path if text.startswith("folder:") else None
    if folder is not None and folder.is_dir():
        names = sorted(file.name for file in folder.iterdir() if file.suffix.lower() in IMAGE_ENDINGS)
        if names:
            images = upright(image_list(folder, names, [0] * len(names)))
            return DataSet(f"folder:{folder.name}", (), images, images, str(folder))
    return open_data(text)


def _is_here(name: str) -> bool:
    """Whether a dataset is inside the package or in the folder of datasets."""
    known = parse(name).known
    return not known.places or find(parse(name)) is not None


def open_exported(request: ExportRequest) -> Callable[[Tensor], Tensor]:
    """The exported file, opened as a user would open it."""
    if request.form not in OPENERS:
        return torch.export.load(request.file).module()  # written by ourselves a moment ago
    return open_file(request.file, Choice(OPENERS[request.form], request.precision)).run


def _outputs(run: Callable[[Tensor], Tensor], images: Tensor, batch_size: int) -> Tensor:
    with torch.inference_mode():
        return torch.cat([run(batch) for batch in images.split(batch_size)])


def _card(
    request: ExportRequest,
    subject: Subject,
    tested_on: DataSet,
    calibration: str | None,
    comparison: Comparison,
    num_classes: int,
) -> ExportCard:
    trained, change = subject.trained, comparison.change
    runtime = RUNTIMES[OPENERS.get(request.form, "eager")]
    return ExportCard(
        favor=__version__,
        sha256=checksums(request.file),
        format=request.form,  # type: ignore[arg-type] # checked by `check_export`, as is the precision
        precision=request.precision,  # type: ignore[arg-type]
        dynamic_batch=request.dynamic_batch,
        model=subject.name,
        img_size=subject.framing.img_size,
        in_chans=trained.in_chans if trained else 3,
        mean=subject.normalization.mean,
        std=subject.normalization.std,
        crop_ratio=subject.framing.crop_ratio,
        crop_mode=subject.framing.mode,
        interpolation=subject.framing.interpolation,
        num_classes=num_classes,
        classes=subject.classes,
        class_names=subject.class_names,
        dataset=subject.dataset,
        epochs=trained.epochs if trained else None,
        source=subject.source,
        calibration=calibration,
        versions={"torch": str(torch.__version__), **versions(runtime)},
        self_test=SelfTest(
            data=tested_on.name,
            images=comparison.images,
            largest_deviation=comparison.deviation,
            relative_deviation=comparison.relative,
            top1_agreement=comparison.agreement,
            top1=comparison.top1,
            top1_change=change.value if change else None,
            top1_change_low=change.low if change else None,
            top1_change_high=change.high if change else None,
        ),
    )
