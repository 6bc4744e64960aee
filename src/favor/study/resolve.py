"""Resolve a study for this machine: look up every name and check every size before any job runs."""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

from favor.data.download import downloaded, require_downloaded
from favor.data.names import DataRequest, find, parse
from favor.errors import MissingHereError, RequestError, Step, if_here, unknown_name
from favor.machine.device import Device, find_device
from favor.machine.environment import usable_threads
from favor.measurement.loadgen_traffic import require_loadgen
from favor.records import published
from favor.runtime.matrix import refuse_known_failure
from favor.runtime.names import RUNTIMES, TRAINING
from favor.runtime.names import check as check_runtime
from favor.study.plan import ways_to_run
from favor.study.resolved import Command, FirstWeights, Machine, PlannedModel, ResolvedStudy
from favor.study.schema import (
    BatchSizes,
    ExecutorOptions,
    MeasureOptions,
    Override,
    Source,
    Stage,
    StudyFile,
    Train,
    as_written,
)
from favor.study.train_jobs import dataset_of, lineages, recipe_of, stage_pipeline, weights_after
from favor.trace.conditions import PHASES
from favor.training.checkpoint import load_model_file
from favor.training.export import named_images, own_images
from favor.training.initial_weights import checkpoint_file, checkpoint_hash, start_from
from favor.training.recipe import Recipe, is_recipe_file, load_recipe, parse_override
from favor.training.trackers import require_trackers
from favor.zoo.cards import HUB, TIMM
from favor.zoo.checkpoints import checkpoint
from favor.zoo.matching import matching_models
from favor.zoo.registry import card, load_plugin, loaded_plugins

TRAINING_BATCH = {"cpu": 8}
TRAINING_BATCH_ELSEWHERE = 64


def resolve(
    study: StudyFile, source: Source, command: Command = "run", missing_here: list[str] | None = None
) -> ResolvedStudy:
    """The study with all names, defaults and paths resolved; an error names its line, or its option.

    With `missing_here`, as for a dry run, nothing is downloaded, and what this machine lacks goes there instead of
    being refused.
    """
    for number, plugin in enumerate(study.plugins):
        _try(source, ("plugins", number), load_plugin, Path(source.place).parent / plugin)
    machine = _try(source, ("device",), _machine, study, missing_here)
    names = _names(study.models, source)
    train = tuple(
        _resolved_train(train, number, names, source, missing_here) for number, train in enumerate(study.train)
    )
    first_weights = tuple(_first_weights(entry, names, source, missing_here) for entry in train)
    _check_run_folders(train, first_weights, names, source)
    _try(source, ("report", "pipeline"), _check_pipeline, study.report.pipeline, train)
    _check_runtimes(study, names, machine, source, missing_here)
    _try(source, ("log",), if_here, missing_here, require_trackers, study.log)
    if study.load is not None and not machine.is_cluster:
        _try(source, ("load",), if_here, missing_here, require_loadgen)
    options = study.model_dump(include=set(MeasureOptions.model_fields))
    weights, weights_file = _try(source, ("checkpoint",), _checkpoint, study, names, source, missing_here)
    options["checkpoint"] = weights
    options["calibration"] = _try(source, ("calibration",), _calibration, study, weights, train, source, missing_here)
    options["batch_size"] = BatchSizes(
        inference=study.batch_size.inference or "best",
        training=study.batch_size.training or TRAINING_BATCH.get(machine.device, TRAINING_BATCH_ELSEWHERE),
    )
    return ResolvedStudy(
        name=study.name,
        command=command,
        models=tuple(_planned(name, study, source) for name in names),
        plugins=tuple(str(file) for file in loaded_plugins()),
        phases=study.phases,
        machine=machine,
        train=train,
        first_weights=first_weights,
        budget=study.budget,
        report=study.report,
        load=study.load,
        log=study.log,
        checkpoint_hash=None if weights_file is None else checkpoint_hash(weights_file),
        **options,
    )


def _check_runtimes(
    study: StudyFile, names: Sequence[str], machine: Machine, source: Source, missing_here: list[str] | None
) -> None:
    """Refuse what cannot run, with what would work: every runtime and every precision must have some use."""
    kind, here = machine.device.partition(":")[0], not machine.is_cluster
    measured = [phase for phase in PHASES if phase in study.phases]
    for number, runtime in enumerate(study.runtimes):
        fitting = [precision for precision in study.precisions if precision in RUNTIMES[runtime].precisions]
        for precision in fitting or study.precisions[:1]:
            place = ("runtimes", number)
            _try(source, place, if_here, missing_here, check_runtime, runtime, precision, kind, here=here)
        if "inference" in measured or "load" in study.phases:
            for name in names:
                _try(source, ("runtimes", number), refuse_known_failure, name, runtime)
    for number, precision in enumerate(study.precisions):
        if not any(precision in RUNTIMES[runtime].precisions for runtime in study.runtimes):
            _try(source, ("precisions", number), check_runtime, study.runtimes[0], precision, kind, here=here)
    if "training" in measured and not ways_to_run(study, "training"):
        asked = f"{', '.join(study.runtimes)} with {', '.join(study.precisions)}"
        raise source.error(("runtimes",), f"training runs in {' and '.join(TRAINING)}, not in {asked}")


def _calibration(
    study: StudyFile,
    checkpoint: str | None,
    train: Sequence[Train],
    source: Source,
    missing_here: list[str] | None,
) -> str | None:
    """The images that int8 is calibrated with: those named, the checkpoint's, or those that the study trains on.

    They are opened, since a folder without images, or a checkpoint's images that are not here, would fail hours later;
    not in a dry run, since that might download them.
    """
    if "int8" not in study.precisions:
        if study.calibration is not None:
            raise RequestError("only int8 is calibrated; add --precision int8, or leave it out")
        return None
    if study.calibration is not None:
        data = _present_data(study.calibration, Path(source.place).parent, missing_here)
        if missing_here is None:
            named_images(data)
        return data
    if checkpoint is not None:
        if missing_here is None:
            own_images(Path(checkpoint), load_model_file(checkpoint_file(Path(checkpoint)))[0])
        return None
    if train:
        return train[0].data
    raise RequestError(
        "int8 needs images to calibrate with; name some with --calibration NAME[:PATH] such as folder:photos, or "
        "trained weights with --checkpoint RUN"
    )


def _checkpoint(
    study: StudyFile, names: Sequence[str], source: Source, missing_here: list[str] | None
) -> tuple[str | None, Path | None]:
    """The checkpoint to quantize and its file, None if a dry run does not have it.

    It must be of the one model that is measured, at its size and with its classes.
    """
    if study.checkpoint is None:
        return None, None
    if "int8" not in study.precisions:
        raise RequestError("only int8 depends on weights; add --precision int8, or leave it out")
    pushed = study.checkpoint.startswith(HUB)
    path = Path(study.checkpoint) if pushed else _absolute(Path(source.place).parent / study.checkpoint)
    file = if_here(missing_here, _weights_file, path, missing_here is None)
    if file is None:
        return str(path), None
    trained, _ = load_model_file(file)
    if list(names) != [trained.model]:
        raise RequestError(f"{study.checkpoint} holds {trained.model}; measure that model alone")
    sizes = (card(trained.model).image_sizes.default,) if study.img_sizes == "own" else study.img_sizes
    if sizes != (trained.img_size,) or study.num_classes != len(trained.classes):
        raise RequestError(
            f"{study.checkpoint} is for {trained.img_size} px and {len(trained.classes)} classes; add --img-size "
            f"{trained.img_size} --num-classes {len(trained.classes)}"
        )
    return str(path), file


def _weights_file(path: Path, may_download: bool) -> Path:
    """The model file at a path, as `checkpoint_file` finds it."""
    if not may_download and str(path).startswith((TIMM, HUB)):
        raise MissingHereError(f"weights {path}: `favor run` without --dry-run downloads them unless they are cached")
    return checkpoint_file(path)


def _machine(study: StudyFile, missing_here: list[str] | None) -> Machine:
    if study.executor.is_cluster:
        return cluster_machine(study.device, study.threads, study.executor)
    device, threads = if_here(missing_here, find_device, study.device), study.threads or usable_threads()
    return _any_machine(str(study.device), threads) if device is None else machine_of(device, threads)


def cluster_machine(device: str | None, threads: int | None, executor: ExecutorOptions) -> Machine:
    """Any node of a cluster: the login node, where a study is resolved, may be of another kind."""
    if device is None:
        device = "cuda" if executor.gpus_per_node else "cpu"
    if device not in ("cpu", "cuda"):
        raise RequestError(f"device {device}: jobs on a cluster run on cpu or cuda; write one of these")
    if device == "cuda" and not executor.gpus_per_node:
        raise RequestError("device cuda: the jobs request no GPU; add --set gpus_per_node=N")
    return _any_machine(device, threads or executor.cpus_per_task)


def _any_machine(device: str, threads: int) -> Machine:
    """A machine that is not this one, of which only the kind of device is known."""
    label = "cpu" if device == "cpu" else ""
    return Machine(device=device, label=label, device_name="", torch=str(torch.__version__), threads=threads)


def machine_of(device: Device, threads: int) -> Machine:
    """The machine of a study: a device with its name, threads and version of PyTorch."""
    return Machine(
        device=str(device.torch_device),
        label=device.label,
        device_name=device.name,
        torch=str(torch.__version__),
        threads=threads,
    )


def _names(entries: Sequence[str], source: Source) -> list[str]:
    """The models of a study, each once, in the order of the file."""
    by_entry = [_try(source, ("models", number), matching_models, [entry]) for number, entry in enumerate(entries)]
    return list(dict.fromkeys(name for names in by_entry for name in names))


def _first_weights(train: Train, names: Sequence[str], source: Source, missing_here: list[str] | None) -> FirstWeights:
    """The initial weights, which must fit every model that is trained; a dry run may know no more than their name."""
    if train.init is None:
        return FirstWeights()
    path, place = Path(train.init), ("train", "init")
    trained = names if train.models is None else train.models
    if missing_here is not None:
        if train.init.startswith(TIMM):
            for name in trained:
                _try(source, place, checkpoint, card(name).name, train.init.removeprefix(TIMM))
        if _try(source, place, if_here, missing_here, _weights_file, path, False) is None:
            return FirstWeights(pretraining=train.init)
    starts = [_try(source, place, start_from, path, name) for name in trained]
    return starts[0].described


def _planned(name: str, study: StudyFile, source: Source) -> PlannedModel:
    model = card(name)
    sizes = (model.image_sizes.default,) if study.img_sizes == "own" else study.img_sizes
    for number, side in enumerate(sizes):
        _try(source, ("img_sizes", number), model.image_sizes.check, name, (side, side))
    return PlannedModel(name=name, how=model.how.key if model.how else None, img_sizes=sizes)


def _check_pipeline(wanted: str | None, train: Sequence[Train]) -> None:
    """Refuse a pipeline that is neither published nor trained by this study: it has no accuracies."""
    known = {str(record.conditions["pipeline"]) for record in published.records() if "pipeline" in record.conditions}
    for stage in [lineage[-1] for entry in train for lineage in lineages(entry)]:
        known.add(stage_pipeline(stage))
    if wanted is not None and wanted not in known:
        raise unknown_name("pipeline", wanted, known, "known (published or trained here): " + ", ".join(sorted(known)))


def _resolved_train(
    train: Train, number: int, names: Sequence[str], source: Source, missing_here: list[str] | None
) -> Train:
    path: tuple[Step, ...] = ("train", number)
    written = as_written(source.mapping("a study"), (*path, "log"))
    _try(source, written, if_here, missing_here, require_trackers, train.log)
    if train.models is not None:
        names = _some_of(names, train.models, (*path, "models"), source)
        train = train.model_copy(update={"models": names})
    return _resolved_stage(train, names, source, path, missing_here)


def _some_of(names: Sequence[str], entries: Sequence[str], path: tuple[Step, ...], source: Source) -> tuple[str, ...]:
    """The models of the study that entries name, in the study's order."""
    content = source.mapping("a study")
    chosen: set[str] = set()
    for number, entry in enumerate(entries):
        here = as_written(content, (*path, number))
        matching = set(_try(source, here, matching_models, [entry])) & set(names)
        if not matching:
            raise source.error(here, f"{entry} is not among the models that are trained; add it to `models:` there")
        chosen |= matching
    return tuple(name for name in names if name in chosen)


AnyStage = TypeVar("AnyStage", bound=Stage)


def _resolved_stage(
    stage: AnyStage, names: Sequence[str], source: Source, path: tuple[Step, ...], missing_here: list[str] | None
) -> AnyStage:
    """A training and its fine-tunings with absolute paths, checked together with the models' image sizes."""
    folder = Path(source.place).parent
    written = as_written(source.mapping("a study"), path)
    changes: dict[str, object] = {
        "recipe": str((folder / stage.recipe).resolve()) if is_recipe_file(stage.recipe) else stage.recipe,
        "overrides": tuple(
            Override(models=_some_of(names, entry.models, (*path, "overrides", at, "models"), source), set=entry.set)
            for at, entry in enumerate(stage.overrides)
        ),
    }
    if stage.init is not None and not stage.init.startswith((TIMM, HUB)):
        changes["init"] = str(_absolute(folder / stage.init))
    resolved = stage.model_copy(update=changes)
    recipe = _checked_recipe(resolved, source, path)
    for model in names:
        _try(source, (*written, "recipe"), card(model).image_sizes.check, model, (recipe.img_size, recipe.img_size))
    data = _try(source, (*written, "data"), _present_data, stage.data or recipe.data, folder, missing_here)
    finetune = tuple(
        _resolved_stage(later, names, source, (*path, "finetune", at), missing_here)
        for at, later in enumerate(stage.finetune)
    )
    return resolved.model_copy(update={"data": data, "finetune": finetune})


_NOT_OVERRIDDEN = ("data", "epochs", "img_size", "precision")
"""Training runs that differ in these are not compared, but the models of a training stay in one comparison."""


def _checked_recipe(stage: Stage, source: Source, path: tuple[Step, ...]) -> Recipe:
    """The recipe of a stage; what is wrong with it, or with the overrides for some models, is an error at its line."""
    written = as_written(source.mapping("a study"), path)
    if stage.init is not None and "finetune" in path:
        raise source.error((*written, "init"), "fine-tuning starts from the weights of the training before; remove it")
    _try(source, (*written, "recipe"), load_recipe, stage.recipe)
    for at, entry in enumerate(stage.set):
        here = (*written, "set", at)
        if _try(source, here, parse_override, entry)[0] == "seed":
            raise source.error(here, "the seeds of a training are in its `seeds:`, such as `seeds: [0, 1]`")
    recipe = _try(source, (*written, "set" if stage.set else "recipe"), recipe_of, stage, 0, "")
    for number, override in enumerate(stage.overrides):
        here = (*written, "overrides", number, "set")
        for at, entry in enumerate(override.set):
            key, _ = _try(source, (*here, at), parse_override, entry)
            if key in (*_NOT_OVERRIDDEN, "seed"):
                raise source.error(
                    (*here, at),
                    f"{key} cannot be overridden, because the models would no longer be compared with the others; "
                    "give them a training of their own, with `models:`",
                )
        for model in override.models:
            _try(source, here, recipe_of, stage, 0, model)
    return recipe


def _check_run_folders(
    trainings: Sequence[Train], first_weights: Sequence[FirstWeights], names: Sequence[str], source: Source
) -> None:
    """Refuse two training runs of a model whose checkpoints would share a folder, or whose records would look alike."""
    seen: dict[tuple[object, ...], int] = {}
    for number, train in enumerate(trainings):
        for lineage, model, seed in product(lineages(train), train.models or names, train.seeds):
            recipe = recipe_of(lineage[-1], seed, model)
            start = weights_after(first_weights[number], lineage[:-1], seed, model)
            key = (model, seed, recipe.name, dataset_of(lineage[-1]), start, recipe.img_size, lineage[-1].name)
            if key in seen:
                path = as_written(source.mapping("a study"), ("train", number))
                raise source.error(
                    path,
                    f"{model} is trained twice with {recipe.name} on {dataset_of(lineage[-1])} from the same weights; "
                    "give one of the two a `name:`",
                )
            seen[key] = number


def _absolute(file: Path) -> Path:
    """The absolute path of a file; a link is not followed, since its name may say more, as in the Hub's cache."""
    return file.parent.resolve() / file.name


def _present_data(text: str, folder: Path, missing_here: list[str] | None) -> str:
    """A dataset with an absolute path, downloaded if needed: a study must not fail hours later for lack of it."""
    request = parse(text)
    if request.path is not None:
        request = parse(f"{request.known.name}:{(folder / request.path).resolve()}")
    inside_the_package = not (request.known.places or request.known.needs_path)
    if not inside_the_package:
        if_here(missing_here, _require_data, request, missing_here is None)
    return request.known.name if request.path is None else f"{request.known.name}:{request.path}"


def _require_data(request: DataRequest, may_download: bool) -> None:
    if find(request) is None:
        (downloaded if may_download else require_downloaded)(request.known)


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
