"""From a study file to what it asks for on this machine: every name looked up, every size checked, before any runs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

from favor.data.download import downloaded
from favor.data.names import find, parse
from favor.errors import RequestError, Step, shown, unknown_name
from favor.machine.device import Device, find_device
from favor.machine.environment import usable_threads
from favor.measure.meters import TRAINING_BATCH, TRAINING_BATCH_ELSEWHERE
from favor.records import published
from favor.study.resolved import Machine, PlannedModel, ResolvedStudy
from favor.study.schema import BatchSizes, Stage, StudyFile, Train
from favor.study.train_jobs import recipe_of
from favor.train.epoch_record import pipeline_of
from favor.yaml_file import YamlFile
from favor.zoo.registry import card, list_models, load_plugin, loaded_plugins

WILDCARDS = "*?["


def resolve(study: StudyFile, source: YamlFile) -> tuple[ResolvedStudy, Device]:
    """What a study asks for here, and the device that it runs on; whatever cannot be is told with its line."""
    for number, plugin in enumerate(study.plugins):
        _try(source, ("plugins", number), load_plugin, Path(source.place).parent / plugin)
    device = _try(source, ("device",), find_device, study.device)
    names = _names(study.models, source)
    train = None if study.train is None else _resolved_train(study.train, names, source)
    _try(source, ("report", "pipeline"), _check_pipeline, study.report.pipeline, train)
    resolved = ResolvedStudy(
        name=study.name,
        models=tuple(_planned(name, study, source) for name in names),
        plugins=tuple(str(file) for file in loaded_plugins()),
        num_classes=study.num_classes,
        phases=study.phases,
        precisions=study.precisions,
        batch_size=BatchSizes(
            inference=study.batch_size.inference or "best",
            training=study.batch_size.training or TRAINING_BATCH.get(device.kind, TRAINING_BATCH_ELSEWHERE),
        ),
        energy=study.energy,
        machine=machine_of(device, study.threads or usable_threads()),
        train=train,
        budget=study.budget,
        report=study.report,
    )
    return resolved, device


def machine_of(device: Device, threads: int) -> Machine:
    """What a device is called in a study."""
    return Machine(
        device=str(device.place),
        label=device.label,
        device_name=device.name,
        torch=str(torch.__version__),
        threads=threads,
    )


def _names(entries: Sequence[str], source: YamlFile) -> list[str]:
    """The models that names, patterns and classes stand for, each once, in the order of the file."""
    found: dict[str, None] = {}
    for number, entry in enumerate(entries):
        path = ("models", number)
        matches = _try(source, path, _matching, entry)
        if not matches:
            raise source.error(path, f"no model fits {shown(entry)}; `favor list` shows all")
        found.update(dict.fromkeys(matches))
    return list(found)


def _matching(entry: str) -> list[str]:
    level, colon, key = entry.partition(":")
    if colon and level == "how":
        return list_models(how=key)
    if colon and level == "where":
        return list_models(where=key)
    if colon and level != "timm":
        raise unknown_name("kind of model", level, ("how", "where", "timm"), "write how:kernel or where:mlp_block")
    if not any(mark in entry for mark in WILDCARDS):
        return [card(entry).name]
    if level == "timm" and colon:
        import timm

        return [f"timm:{match}" for match in timm.list_models(key)]
    return list_models(entry)


def _planned(name: str, study: StudyFile, source: YamlFile) -> PlannedModel:
    known = card(name)
    sizes = (known.image_sizes.default,) if study.img_sizes == "own" else study.img_sizes
    for number, side in enumerate(sizes):
        _try(source, ("img_sizes", number), known.image_sizes.check, name, (side, side))
    return PlannedModel(name=name, how=known.how.key if known.how else None, img_sizes=sizes)


def _check_pipeline(wanted: str | None, train: Train | None) -> None:
    """A pipeline that nobody has published and that this study does not train by would leave it without accuracies."""
    known = {str(record.conditions["pipeline"]) for record in published.records() if "pipeline" in record.conditions}
    if train is not None:
        last = train.finetune or train
        known.add(pipeline_of(recipe_of(last, train.seeds[0]), last.minutes))
    if wanted is not None and wanted not in known:
        raise unknown_name("pipeline", wanted, known, "published, or trained here, are " + ", ".join(sorted(known)))


def _resolved_train(train: Train, names: Sequence[str], source: YamlFile) -> Train:
    finetune = None
    if train.finetune is not None:
        path: tuple[Step, ...] = ("train", "finetune")
        finetune = train.finetune.model_copy(update=_resolved_stage(train.finetune, names, source, path))
    return train.model_copy(update={**_resolved_stage(train, names, source, ("train",)), "finetune": finetune})


def _resolved_stage(stage: Stage, names: Sequence[str], source: YamlFile, path: tuple[Step, ...]) -> dict[str, str]:
    """A training's recipe and data set, paths made whole; both are checked, and the models' sizes with them."""
    folder = Path(source.place).parent
    is_file = stage.recipe.endswith((".yaml", ".yml"))
    name = str((folder / stage.recipe).resolve()) if is_file else stage.recipe
    recipe = _try(source, (*path, "recipe"), recipe_of, stage.model_copy(update={"recipe": name}), 0)
    for model in names:
        _try(source, (*path, "recipe"), card(model).image_sizes.check, model, (recipe.img_size, recipe.img_size))
    data = _try(source, (*path, "data"), _present_data, stage.data or recipe.data, folder)
    return {"recipe": name, "data": data}


def _present_data(text: str, folder: Path) -> str:
    """A data set with its path made whole; hours into a study is too late to learn that it is not to be had."""
    request = parse(text)
    if request.path is not None:
        request = parse(f"{request.known.name}:{(folder / request.path).resolve()}")
    inside_the_package = not (request.known.places or request.known.needs_path)
    if not inside_the_package and find(request) is None:
        downloaded(request.known)
    return request.known.name if request.path is None else f"{request.known.name}:{request.path}"


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _try(
    source: YamlFile,
    path: Sequence[Step],
    function: Callable[Arguments, Result],
    *arguments: Arguments.args,
    **named: Arguments.kwargs,
) -> Result:
    """What a function gives; a request that it refuses is told with the line of the file."""
    try:
        return function(*arguments, **named)
    except RequestError as error:
        raise source.error(path, error) from error
