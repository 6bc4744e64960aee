"""timm's published result files as records: accuracy (`results-*.csv`) and speed (`benchmark-*.csv`).

The environment of a speed file is only in its name, so a file must keep the name that timm gave it. An accuracy
belongs to weights (`resnet50.a1_in1k`), a speed to an architecture (`resnet50`): records are named by the
architecture, which joins the two, and the tag of the weights is a condition.
"""

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path

from msgspec.structs import replace

from favor.errors import RequestError, shown
from favor.records.published import card_fields
from favor.records.result_file import ImportedFile, count, import_rows, positive
from favor.records.schema import EAGER, CardFields, Reading, Record, Scalar, Task, reading

_NAMES = "results-imagenet.csv or benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv"
_BENCHMARK = re.compile(
    r"benchmark-(?P<phase>infer|train)-(?P<precision>[a-z0-9_]+)-(?P<layout>nchw|nhwc)-pt(?P<torch>\d{3,4})"
    r"-(?P<platform>cpu|cu\d{2,}|rocm\d+)-(?P<device>[a-z0-9_]+)(-(?P<compile>[a-z0-9_]+))?\.csv"
)
_RESULTS = re.compile(r"results-(?P<dataset>[a-z0-9-]+)\.csv")
_COLUMNS = {
    "results": ("model", "img_size", "top1", "top5", "param_count", "crop_pct", "interpolation"),
    "infer": ("model", "infer_img_size", "infer_samples_per_sec", "infer_batch_size", "param_count"),
    "train": ("model", "train_img_size", "train_samples_per_sec", "train_batch_size", "param_count"),
}
_PRECISIONS = {"amp": "amp-fp16", "amp_fp16": "amp-fp16", "amp_bf16": "amp-bf16"}
_TWO_HEADS_IN_TIMM = ("efficientformerv2", "swiftformer")
SHIPPED_ACCURACIES = "timm_accuracies.csv"
_MILLION, _BILLION = 1e6, 1e9


@dataclass(frozen=True)
class _FileKind:
    """The kind of a file, from its name: the columns to expect, and the conditions that its rows share."""

    columns: str
    task: Task
    conditions: Mapping[str, Scalar]
    environment: Mapping[str, Scalar]


def import_timm(file: Path) -> ImportedFile:
    """All rows of one of timm's result files; other files are refused with a reason."""
    kind = _kind_of(file)

    def check(header: Sequence[str]) -> None:
        missing = [column for column in _COLUMNS[kind.columns] if column not in header]
        if missing:
            raise RequestError(
                f"{file} does not match its name: timm's {kind.columns} files have a column {missing[0]}"
            )

    return import_rows(file, check, lambda row: [_record(kind, row, file.name)])


@dataclass(frozen=True)
class CheckpointAccuracy:
    """What a checkpoint of timm reaches on ImageNet-1k at an image size, in %, and how it was trained."""

    checkpoint: str
    img_size: int
    top1: float
    top5: float
    pretraining: str
    distilled: bool


@cache
def _shipped() -> Mapping[str, tuple[Mapping[str, str], ...]]:
    """timm's results-imagenet.csv as copied on 2026-11-17 (Apache-2.0): the rows by architecture.

    Columns that follow from others are left out.
    """
    text = (files("favor.records") / SHIPPED_ACCURACIES).read_text(encoding="utf-8")
    by_architecture: dict[str, list[Mapping[str, str]]] = {}
    for row in csv.DictReader(text.splitlines()):
        by_architecture.setdefault(row["model"].partition(".")[0], []).append(row)
    return {architecture: tuple(rows) for architecture, rows in by_architecture.items()}


def accuracy_records(name: str, card: CardFields, architectures: Iterable[str]) -> tuple[Record, ...]:
    """The accuracies of a model with the pretrained weights of timm's architectures; each has a pipeline of its own.

    >>> accuracy_records("swiftformer_xs", CardFields(), ["swiftformer_xs"])[0].conditions["pipeline"]
    'timm:dist_in1k'
    """
    kind = _kind_of(Path("results-imagenet.csv"))
    rows = [row for architecture in architectures for row in _shipped().get(architecture, ())]
    records = [_record(kind, row, SHIPPED_ACCURACIES) for row in rows]
    # timm counts a second head as well, whose mean with the first is one head in favor's model
    without = {"params"} if name.startswith(_TWO_HEADS_IN_TIMM) else set()
    metrics = [{key: value for key, value in accuracy.metrics.items() if key not in without} for accuracy in records]
    return tuple(
        replace(record, name=name, model=card, metrics=own) for record, own in zip(records, metrics, strict=True)
    )


def checkpoint_accuracies(architectures: Iterable[str]) -> tuple[CheckpointAccuracy, ...]:
    """The published accuracies of all checkpoints of some of timm's architectures.

    >>> [(one.checkpoint, one.top1) for one in checkpoint_accuracies(["swiftformer_xs"])]
    [('swiftformer_xs.dist_in1k', 75.6)]
    """
    return tuple(
        CheckpointAccuracy(
            checkpoint=str(record.provenance["row"]),
            img_size=int(record.conditions["img_size"]),
            top1=record.metrics["top1"].value,
            top5=record.metrics["top5"].value,
            pretraining=str(record.conditions.get("pretraining", "unknown")),
            distilled=bool(record.conditions.get("distillation", False)),
        )
        for record in accuracy_records("", CardFields(), architectures)
    )


def timm_card(architecture: str) -> CardFields:
    """The known card fields of an architecture under timm's own name.

    >>> timm_card("swin_tiny_patch4_window7_224").how
    'sparse'
    """
    return replace(_named(architecture)[1], title=architecture, origin="timm")


def named(architecture: str) -> str:
    """The name of an architecture here: that of our model if it is the same network, else `timm:NAME`.

    >>> named("swin_tiny_patch4_window7_224"), named("levit_256")
    ('swin_ti', 'timm:levit_256')
    """
    return _named(architecture)[0]


def shipped_architectures() -> tuple[str, ...]:
    """timm's architectures with a published accuracy on ImageNet-1k."""
    return tuple(_shipped())


def _kind_of(file: Path) -> _FileKind:
    if match := _RESULTS.fullmatch(file.name):
        dataset = "imagenet-1k" if match["dataset"] == "imagenet" else match["dataset"]
        return _FileKind("results", "accuracy", {"dataset": dataset}, {})
    if match := _BENCHMARK.fullmatch(file.name):
        conditions: dict[str, Scalar] = {
            "device": match["device"].replace("_", "-"),
            "precision": _PRECISIONS.get(match["precision"], match["precision"]),
            "layout": match["layout"],
            "runtime": "compile" if match["compile"] else EAGER,
        }
        environment: dict[str, Scalar] = {"device_name": match["device"], "torch": torch_version(match["torch"])}
        if match["platform"] != "cpu":
            environment |= platform_version(match["platform"])
        if match["compile"]:
            environment["compile_mode"] = match["compile"]
        task: Task = "inference" if match["phase"] == "infer" else "training"
        return _FileKind(match["phase"], task, conditions, environment)
    raise RequestError(f"{file.name} is not named like a timm result file, such as {_NAMES}; favor needs the name")


def torch_version(digits: str) -> str:
    """The framework's version from the digits in a file's name.

    >>> torch_version("240"), torch_version("2100"), torch_version("112")
    ('2.4.0', '2.10.0', '1.12')
    """
    # For PyTorch 1.x, timm writes only the minor version, and has no files before 1.10.
    if len(digits) == 3 and digits[0] == "1":
        return f"1.{digits[1:]}"
    return f"{digits[0]}.{digits[1:-1]}.{digits[-1]}"


def platform_version(platform: str) -> dict[str, Scalar]:
    """The compute platform's version from its part of a file's name.

    >>> platform_version("cu124")
    {'cuda': '12.4'}
    """
    if platform.startswith("cu"):
        return {"cuda": f"{platform[2:-1]}.{platform[-1]}"}
    return {"rocm": platform.removeprefix("rocm")}


def _record(kind: _FileKind, row: Mapping[str, str], file: str) -> Record:
    architecture, _, tag = row["model"].partition(".")
    if not re.fullmatch(r"\w{1,100}", architecture, re.ASCII) or not re.fullmatch(r"[\w.-]{0,100}", tag, re.ASCII):
        raise ValueError(f"model {shown(row['model'])} is not a timm name")
    name, card = _named(architecture)
    conditions, metrics = _READERS[kind.columns](row)
    if tag:
        conditions |= {"weights": tag, **_training_of(architecture, tag)}
    if kind.task == "accuracy":
        conditions["pipeline"] = f"timm:{tag}" if tag else "timm"
    return Record(
        name=name,
        model=card,
        task=kind.task,
        source="imported",
        conditions={**conditions, **kind.conditions},
        metrics=metrics | {"params": _number(row, "param_count", "params", _MILLION, "millions")},
        # The row's name, not its line number, which changes when timm adds a model.
        provenance={"file": file, "row": row["model"]},
        environment=kind.environment,
    )


_Found = tuple[dict[str, Scalar], dict[str, Reading]]


def _accuracy(row: Mapping[str, str]) -> _Found:
    top1, top5 = _number(row, "top1", "top1"), _number(row, "top5", "top5")
    if not top1.value <= top5.value <= 100:
        raise ValueError(
            f"top1 {shown(row['top1'])} and top5 {shown(row['top5'])} are not percentages of the same images"
        )
    conditions: dict[str, Scalar] = {
        "img_size": count(row, "img_size"),
        "crop_pct": positive(row, "crop_pct"),
        "interpolation": row["interpolation"],
    }
    if not re.fullmatch(r"[\w-]{1,100}", row["interpolation"], re.ASCII):
        raise ValueError(f"interpolation {shown(row['interpolation'])} is not a name")
    return conditions, {"top1": top1, "top5": top5}


def _inference(row: Mapping[str, str]) -> _Found:
    conditions: dict[str, Scalar] = {
        "img_size": count(row, "infer_img_size"),
        "batch_size": count(row, "infer_batch_size"),
    }
    metrics = {"throughput": _number(row, "infer_samples_per_sec", "throughput")}
    # timm leaves these two empty where its counter failed.
    if row.get("infer_gmacs"):
        metrics["macs"] = _number(row, "infer_gmacs", "macs", _BILLION, "billions")
    if row.get("infer_macts"):
        metrics["activations"] = _number(row, "infer_macts", "activations", _MILLION, "millions")
    return conditions, metrics


def _training(row: Mapping[str, str]) -> _Found:
    conditions: dict[str, Scalar] = {
        "img_size": count(row, "train_img_size"),
        "batch_size": count(row, "train_batch_size"),
    }
    return conditions, {"train_throughput": _number(row, "train_samples_per_sec", "train_throughput")}


_READERS: dict[str, Callable[[Mapping[str, str]], _Found]] = {
    "results": _accuracy,
    "infer": _inference,
    "train": _training,
}


def _number(row: Mapping[str, str], column: str, metric_name: str, scale: float = 1.0, printed_in: str = "") -> Reading:
    """A metric from a cell, with its method; scaled values become integers.

    >>> _number({"param_count": "1,013.01"}, "param_count", "params", 1e6, "millions").value
    1013010000
    """
    value = positive(row, column)
    method = f"timm's {column}" + (f", printed in {printed_in}" if printed_in else "")
    return reading(metric_name, round(value * scale) if printed_in else value, method=method)


@dataclass(frozen=True)
class _Mapped:
    """Facts about architectures: our name, the family, or only a family whose place in the taxonomy they share."""

    pattern: str
    name: str
    family: str
    class_of: str


@cache
def _mapping() -> tuple[_Mapped, ...]:
    text = (files("favor.records") / "timm_architectures.csv").read_text(encoding="utf-8")
    columns = ("architecture", "name", "family", "class_of")
    return tuple(_Mapped(*(row[column] for column in columns)) for row in csv.DictReader(text.splitlines()))


@cache
def _named(architecture: str) -> tuple[str, CardFields]:
    """Our name if our model is the same network, else `timm:NAME`, and the known fields of its family."""
    for known in _mapping():
        if fnmatchcase(architecture, known.pattern):
            card = _family_card(known.family or known.class_of, architecture, bool(known.name))
            own = card if known.family else replace(card, family=None, year=None)
            return known.name or f"timm:{architecture}", own
    return f"timm:{architecture}", CardFields(title=architecture, origin="timm")


def _family_card(family: str, architecture: str, is_ours: bool) -> CardFields:
    card = next(card for card in card_fields().values() if card.family == family)
    return card if is_ours else replace(card, title=architecture, origin="timm")


_PRETRAINING = {
    "in21k": "imagenet-21k",
    "in22k": "imagenet-21k",
    "in12k": "imagenet-12k",
    "swag": "instagram-3.6b",
    "ig1b": "instagram-1b",
    "seer": "instagram",
    "m30m": "merged-30m",
    "m38m": "merged-38m",
}
# Datasets under the name that timm gives them: by name, or by a size in millions or billions, such as lvd142m.
_OTHER_DATA = re.compile(r"(laion|jft|openai|webli|datacomp|dfn|metaclip|yfcc|cc\d).*|[a-z]{2,}\d+[mb]")
_DISTILLED = {"dist", "distilled", "ssld"}


def _training_of(architecture: str, tag: str) -> dict[str, Scalar]:
    """The training that a tag of weights states: all data before ImageNet-1k, and distillation if mentioned.

    >>> _training_of("vit_small_patch16_224", "augreg_in21k_ft_in1k")
    {'pretraining': 'imagenet-21k'}
    >>> _training_of("cait_s24_224", "fb_dist_in1k")
    {'pretraining': 'imagenet-1k', 'distillation': True}
    """
    tokens = tag.split("_")
    data = (token for token in tokens if token in _PRETRAINING or _OTHER_DATA.fullmatch(token))
    known = dict.fromkeys(_PRETRAINING.get(token, token) for token in data)
    # CLIP's image-text pairs are never ImageNet, even if the tag does not name them.
    before = "+".join(known) or ("clip" if "clip" in tokens else "imagenet-1k")
    conditions: dict[str, Scalar] = {"pretraining": before}
    if "distilled" in architecture or not _DISTILLED.isdisjoint(tokens):
        conditions["distillation"] = True
    return conditions


@dataclass(frozen=True)
class Joined:
    """An architecture at an image size: its best published accuracy beside its speeds."""

    name: str
    family: str | None
    img_size: int
    params: float | None
    macs: float | None
    top1: float | None
    weights: str | None
    speeds: Mapping[str, float]


def join_on_architecture(records: Iterable[Record]) -> tuple[Joined, ...]:
    """Accuracies and speeds of the same architecture at the same image size side by side, best accuracy first."""
    groups: dict[tuple[str, Scalar], list[Record]] = {}
    for record in records:
        groups.setdefault((record.name, record.conditions["img_size"]), []).append(record)
    joined = (_joined(name, int(img_size), group) for (name, img_size), group in groups.items())
    return tuple(sorted(joined, key=lambda one: (-(one.top1 or 0), one.name, one.img_size)))


def _joined(name: str, img_size: int, group: Sequence[Record]) -> Joined:
    accuracies = [record for record in group if record.conditions.get("dataset") == "imagenet-1k"]
    best = max(accuracies, key=lambda record: record.metrics["top1"].value, default=None)
    weights = best.conditions.get("weights") if best else None
    return Joined(
        name=name,
        family=group[0].model.family,
        img_size=img_size,
        params=_first(group, "params"),
        macs=_first(group, "macs"),
        top1=best.metrics["top1"].value if best else None,
        weights=str(weights) if weights else None,
        speeds={
            speed_title(record): record.metrics[metric_name].value
            for record in group
            for metric_name in ("throughput", "train_throughput")
            if metric_name in record.metrics
        },
    )


def speed_title(record: Record) -> str:
    """The conditions of a speed in short, such as `inference rtx4090 amp-fp16 compiled`; `nchw` is the usual layout."""
    parts = [str(part) for part in (record.task, record.conditions["device"], record.conditions["precision"])]
    parts += [] if record.conditions["layout"] == "nchw" else [str(record.conditions["layout"])]
    return " ".join([*parts, *(["compiled"] if record.conditions["runtime"] == "compile" else [])])


def _first(group: Iterable[Record], metric_name: str) -> float | None:
    return next((record.metrics[metric_name].value for record in group if metric_name in record.metrics), None)
