"""Resolve a study for this machine: look up every name and check every size before any job runs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

from favor.data.download import downloaded
from favor.data.names import find, parse
from favor.errors import RequestError, Step, unknown_name
from favor.machine.device import Device, find_device
from favor.machine.environment import usable_threads
from favor.records import published
from favor.study.resolved import Command, FirstWeights, Machine, PlannedModel, ResolvedStudy
from favor.study.schema import BatchSizes, MeasureOptions, Source, Stage, StudyFile, Train
from favor.study.train_jobs import recipe_of
from favor.training.epoch_record import pipeline_of
from favor.training.initial_weights import start_from
from favor.zoo.cards import TIMM
from favor.zoo.matching import matching_models
from favor.zoo.registry import card, load_plugin, loaded_plugins

TRAINING_BATCH = {"cpu": 8}
TRAINING_BATCH_ELSEWHERE = 64


def resolve(study: StudyFile, source: Source, command: Command = "run") -> ResolvedStudy:
    """The study with all names, defaults and paths resolved; an error names its line, or its option."""
    for number, plugin in enumerate(study.plugins):
        _try(source, ("plugins", number), load_plugin, Path(source.place).parent / plugin)
    device = _try(source, ("device",), find_device, study.device)
    names = _names(study.models, source)
    train = None if study.train is None else _resolved_train(study.train, names, source)
    _try(source, ("report", "pipeline"), _check_pipeline, study.report.pipeline, train)
    options = study.model_dump(include=set(MeasureOptions.model_fields))
    options["batch_size"] = BatchSizes(
        inference=study.batch_size.inference or "best",
        training=study.batch_size.training or TRAINING_BATCH.get(device.kind, TRAINING_BATCH_ELSEWHERE),
    )
    return ResolvedStudy(
        name=study.name,
        command=command,
        models=tuple(_planned(name, study, source) for name in names),
        plugins=tuple(str(file) for file in loaded_plugins()),
        phases=study.phases,
        machine=machine_of(device, study.threads or usable_threads()),
        train=train,
        first_weights=FirstWeights() if train is None else _first_weights(train, names, source),
        budget=study.budget,
        report=study.report,
        **options,
    )


def machine_of(device: Device, threads: int) -> Machine:
    """The machine of a study: a device with its name, threads and version of PyTorch."""
    return Machine(
        device=str(device.place),
        label=device.label,
        device_name=device.name,
        torch=str(torch.__version__),
        threads=threads,
    )


def _names(entries: Sequence[str], source: Source) -> list[str]:
    """The models of a study, each once, in the order of the file."""
    by_entry = [_try(source, ("models", number), matching_models, [entry]) for number, entry in enumerate(entries)]
    return list(dict.fromkeys(name for names in by_entry for name in names))


def _first_weights(train: Train, names: Sequence[str], source: Source) -> FirstWeights:
    """The initial weights, which must fit every model that is trained."""
    if train.init is None:
        return FirstWeights()
    starts = [_try(source, ("train", "init"), start_from, Path(train.init), name) for name in names]
    return FirstWeights(pretraining=starts[0].pretraining, img_size=starts[0].img_size)


def _planned(name: str, study: StudyFile, source: Source) -> PlannedModel:
    model = card(name)
    sizes = (model.image_sizes.default,) if study.img_sizes == "own" else study.img_sizes
    for number, side in enumerate(sizes):
        _try(source, ("img_sizes", number), model.image_sizes.check, name, (side, side))
    return PlannedModel(name=name, how=model.how.key if model.how else None, img_sizes=sizes)


def _check_pipeline(wanted: str | None, train: Train | None) -> None:
    """Refuse a pipeline that is neither published nor trained by this study: it has no accuracies."""
    known = {str(record.conditions["pipeline"]) for record in published.records() if "pipeline" in record.conditions}
    if train is not None:
        last = train.finetune or train
        known.add(pipeline_of(recipe_of(last, train.seeds[0]), last.minutes))
    if wanted is not None and wanted not in known:
        raise unknown_name("pipeline", wanted, known, "known (published or trained here): " + ", ".join(sorted(known)))


def _resolved_train(train: Train, names: Sequence[str], source: Source) -> Train:
    finetune = None
    if train.finetune is not None:
        path: tuple[Step, ...] = ("train", "finetune")
        finetune = train.finetune.model_copy(update=_resolved_stage(train.finetune, names, source, path))
    return train.model_copy(update={**_resolved_stage(train, names, source, ("train",)), "finetune": finetune})


def _resolved_stage(stage: Stage, names: Sequence[str], source: Source, path: tuple[Step, ...]) -> dict[str, str]:
    """The recipe and data set of a training with absolute paths, checked together with the models' image sizes."""
    folder = Path(source.place).parent
    is_file = stage.recipe.endswith((".yaml", ".yml"))
    name = str((folder / stage.recipe).resolve()) if is_file else stage.recipe
    recipe = _try(source, (*path, "recipe"), recipe_of, stage.model_copy(update={"recipe": name}), 0)
    for model in names:
        _try(source, (*path, "recipe"), card(model).image_sizes.check, model, (recipe.img_size, recipe.img_size))
    data = _try(source, (*path, "data"), _present_data, stage.data or recipe.data, folder)
    is_path = stage.init is not None and not stage.init.startswith(TIMM)
    init = {"init": str((folder / str(stage.init)).resolve())} if is_path else {}
    return {"recipe": name, "data": data, **init}


def _present_data(text: str, folder: Path) -> str:
    """A data set with an absolute path, downloaded if needed: a study must not fail hours later for lack of it."""
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
    source: Source,
    path: Sequence[Step],
    function: Callable[Arguments, Result],
    *arguments: Arguments.args,
    **named: Arguments.kwargs,
) -> Result:
    """Call a function; its errors get the line of the file, or the option."""
    try:
        return function(*arguments, **named)
    except RequestError as error:
        raise source.error(path, error) from error
