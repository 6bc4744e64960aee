"""The options of `favor measure` and `favor load` under which new numbers can be compared with those that are known."""

import shlex
from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from favor.analyze.creation import USUAL_CLASSES, default_img_size, num_classes_of
from favor.analyze.ranking import Request
from favor.analyze.recommendation import text_in
from favor.analyze.setting import EAGER, Setting, column_of
from favor.trace.conditions import IMAGENET_IMAGES, REFERENCE_BATCH
from favor.zoo.cards import TIMM

_USUAL: dict[str, object] = {
    "precision": "fp32",
    "runtime": EAGER,
    "optimizer": "lamb",
    "epoch_images": IMAGENET_IMAGES,
    "reference_batch": REFERENCE_BATCH,
}
_OF_INT8 = "openvino"  # the runtime to suggest where none is known: int8 does not run in eager mode
_AS_IN_THE_SETTING = ("runtime", "precision", "attention", "optimizer", "epoch_images", "reference_batch")


def names_by_options(
    rows: pd.DataFrame, settings: Iterable[Setting], table: pd.DataFrame, request: Request
) -> dict[str, list[str]]:
    """The models of rows, as words of a command, by the options that measure them in their settings.

    Image size and classes are those of the accuracies; in int8, the weights are those of the training run.
    """
    names: dict[str, list[str]] = {}
    for (_, row), setting in zip(rows.iterrows(), settings, strict=True):
        run = text_in(row, "top1_run")
        checkpoint = "RUN" if run is None else request.folder_of(run)
        words = (*_of_size(row), *_of_classes(row, request.dataset, table), *options_in(setting, table, checkpoint))
        options = "".join(f" {word}" for word in words)
        names.setdefault(options, []).append(shlex.quote(str(row["name"])))
    return {options: list(dict.fromkeys(some)) for options, some in names.items()}


def settings_of(rows: pd.DataFrame, column: str) -> list[Setting]:
    """The settings of numbers; of those that are not the user's own only the runtime, which any machine may have."""
    found = [setting if isinstance(setting, Setting) else Setting() for setting in column_of(rows, f"{column}_setting")]
    return [_own_or_runtime(setting) for setting in found]


def settings_like(usual: Setting, rows: pd.DataFrame) -> list[Setting]:
    """A setting in the runtime and precision in which each row is considered."""
    settings = []
    for _, row in rows.iterrows():
        same = replace(usual, runtime=text_in(row, "runtime") or usual.runtime)
        precision = text_in(row, "run_precision") or usual.precision
        settings.append(same if same.machine is None else replace(same, precision=precision))
    return settings


def _own_or_runtime(setting: Setting) -> Setting:
    return setting if setting.machine is not None else Setting(runtime=setting.runtime)


def options_in(setting: Setting, table: pd.DataFrame, checkpoint: str = "RUN") -> list[str]:
    """The options for a setting, without those that are usual; `table` knows the threads of its machine.

    >>> own = Setting(device="cpu", precision="bf16", attention="plain", machine="a processor, host lab-3, 1 threads")
    >>> options_in(own, pd.DataFrame({"machine": [own.machine], "environment.threads": [1.0]}))
    ['--device cpu', '--threads 1', '--precision bf16', '--attention plain']
    """
    if setting.is_quantized and setting.runtime is None:
        setting = replace(setting, runtime=_OF_INT8)
    asked: dict[str, object] = {
        "device": setting.device if setting.device == "cpu" and setting.machine is not None else None,
        "threads": _threads_of(setting.machine, table),
        **{name: getattr(setting, name) for name in _AS_IN_THE_SETTING},
        # Only of a searched batch size the reference batch is part of the setting.
        "batch_size": "best" if setting.reference_batch is not None else setting.batch_size,
        "checkpoint": checkpoint if setting.is_quantized else None,
    }
    needed = {name: value for name, value in asked.items() if value not in (None, _USUAL.get(name))}
    return [f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in needed.items()]


def _threads_of(machine: str | None, table: pd.DataFrame) -> int | None:
    of_machine = column_of(table, "environment.threads")[column_of(table, "machine") == machine]
    known = pd.to_numeric(of_machine, errors="coerce").dropna()
    return int(known.iloc[-1]) if machine is not None and len(known) else None


def _of_classes(row: pd.Series, dataset: str, table: pd.DataFrame) -> list[str]:
    """The option for the number of classes, if it is not the usual one; for own images, that of the last record."""
    classes = num_classes_of(dataset)
    if isinstance(classes, str):
        own = (column_of(table, "source") == "measured") & (table["name"] == row["name"])
        known = pd.to_numeric(column_of(table, "num_classes")[own], errors="coerce").dropna()
        classes = int(known.iloc[-1]) if len(known) else USUAL_CLASSES
    return [] if classes == USUAL_CLASSES else [f"--num-classes {classes}"]


def _of_size(row: pd.Series) -> list[str]:
    """The image size, where it is not the one that `favor measure` takes by itself."""
    name, origin, size = str(row["name"]), text_in(row, "origin"), row.get("img_size")
    default = default_img_size(name, origin)
    if size is None or pd.isna(size) or default is None:
        return []
    # The index does not know the sizes of timm's networks and of plugins.
    is_known = not name.startswith(TIMM) and origin != "plugin"
    return [] if is_known and size == default else [f"--img-size {size:g}"]
