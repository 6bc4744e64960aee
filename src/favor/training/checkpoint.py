"""Checkpoints: a model file, all that evaluation and prediction need, and a state file to resume from.

Both are safetensors files with JSON in their header, so nothing in them is ever executed. They are written
to a temporary file and renamed, the state first; a pair is complete when both name the same run and step. The two
newest pairs are kept.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from favor.errors import RequestError, WorkError, one_line, path_text, shown
from favor.training.state import RunState, Trained
from favor.zoo.weights import weights_to_save

BEST = "best.safetensors"
KEPT_PAIRS = 2

_MODEL_KEY, _STATE_KEY = "favor.trained", "favor.state"
_GROUP = "group "
_MODEL_FILE = re.compile(r"step-(\d{9})\.safetensors\Z")
_FILE_OF_A_STEP = re.compile(r"\.?step-(\d{9})(\.state)?\.safetensors(\.part)?\Z")
Header = TypeVar("Header", bound=BaseModel)


class UnusableFileError(RequestError):
    """A file that is truncated, foreign or of another version, and why."""


@dataclass(frozen=True)
class Checkpoint:
    """All that resuming needs: the model's weights, the tensors of optimizer and gradient scaler, and the state."""

    trained: Trained
    weights: Mapping[str, Tensor]
    state: RunState
    tensors: Mapping[str, Tensor]
    file: Path


def model_file(folder: Path, step: int) -> Path:
    """The model file of a step."""
    return folder / f"step-{step:09d}.safetensors"


def state_file(folder: Path, step: int) -> Path:
    """The state file to resume from that step."""
    return folder / f"step-{step:09d}.state.safetensors"


def save_model(file: Path, model: nn.Module, trained: Trained) -> None:
    """Write a model's weights and their description atomically."""
    _write(file, save(_on_cpu(weights_to_save(model)), {_MODEL_KEY: trained.model_dump_json()}))


def save_checkpoint(folder: Path, model: nn.Module, trained: Trained, optimizer: Optimizer, state: RunState) -> None:
    """Write a pair of files and delete all but the newest pairs."""
    tensors = {name: value.contiguous() for name, value in _optimizer_tensors(model, optimizer).items()}
    _write(state_file(folder, state.step), save(_on_cpu(tensors), {_STATE_KEY: state.model_dump_json()}))
    save_model(model_file(folder, state.step), model, trained)
    kept = [step for step in _steps(folder) if step <= state.step][:KEPT_PAIRS]
    for file in folder.iterdir():  # including incomplete pairs and files of a killed writer
        match = _FILE_OF_A_STEP.match(file.name)
        if match and int(match[1]) < state.step and int(match[1]) not in kept:
            file.unlink(missing_ok=True)


def load_model_file(file: Path) -> tuple[Trained, dict[str, Tensor]]:
    """The description of a model, and its weights."""
    return _read(file, _MODEL_KEY, Trained)


def newest_checkpoint(folder: Path) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """The newest complete pair, and why newer ones were skipped; None if there is no file at all."""
    refused: list[str] = []
    for step in _steps(folder):
        try:
            return _load_pair(folder, step), tuple(refused)
        except UnusableFileError as error:
            refused.append(str(error))
    if refused:
        raise RequestError(
            f"no checkpoint in {folder} can be used: {'; '.join(refused)}; train again in another --study"
        )
    return None, ()


def optimizer_state(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The optimizer state besides tensors, one dict per parameter group."""
    kept = [
        {key: value for key, value in group.items() if key != "params" and not torch.is_tensor(value)}
        for group in optimizer.param_groups
    ]
    return json.loads(json.dumps(kept))


def restore_optimizer(
    model: nn.Module, optimizer: Optimizer, groups: list[dict[str, Any]], tensors: Mapping[str, Tensor]
) -> None:
    """Restore the state of an optimizer."""
    number_of = {name: number for number, name in _names_of(model, optimizer).items()}
    fresh = optimizer.state_dict()
    if len(groups) != len(fresh["param_groups"]):
        raise UnusableFileError(f"the state has {len(groups)} parameter groups, not {len(fresh['param_groups'])}")
    for group, kept in zip(fresh["param_groups"], groups, strict=True):
        for key, value in kept.items():
            restored = tuple(value) if isinstance(value, list) else value
            if key == "params" or not _is_alike(restored, group.get(key)) or not _is_possible(key, restored):
                raise UnusableFileError(
                    f"the state has the setting {shown(key)}: {shown(value)}, which no optimizer has"
                )
            group[key] = restored
    state: dict[int, dict[str, Tensor]] = {}
    group_of = {f"{_GROUP}{number}": group for number, group in enumerate(fresh["param_groups"])}
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    for key, value in tensors.items():
        # Copied, because tensors from the file may be unaligned, and kernels give other results by alignment.
        owner, _, what = key.rpartition("/")
        if not _is_possible(what, value):
            raise UnusableFileError(f"the state has {shown(key)} of a step before the first")
        if owner in number_of and (value.ndim == 0 or value.shape == shapes[owner]):
            state.setdefault(number_of[owner], {})[what] = value.clone()
        elif owner in group_of:
            group = group_of[owner]
            group[what] = value.clone().to(next(model.parameters()).device)
        else:
            raise UnusableFileError(
                f"the state has {shown(key)}, which does not fit this model; it belongs to another model"
            )
    if len({frozenset(tensors_of_one) for tensors_of_one in state.values()}) > 1:
        raise UnusableFileError("the state lacks some tensors of some parameters")
    optimizer.load_state_dict({"state": state, "param_groups": fresh["param_groups"]})


def _is_possible(name: str, value: object) -> bool:
    """Whether a number that an optimizer divides by stays above zero: after a step, and with decays below one."""
    if name == "step" and isinstance(value, int | float | torch.Tensor):
        return bool(torch.as_tensor(value).ge(0).all())
    return name != "betas" or (isinstance(value, tuple) and all(0 <= beta < 1 for beta in value))


def _is_alike(restored: object, fresh: object) -> bool:
    """Whether a setting of an optimizer can replace the fresh one; any can where there is none."""
    if fresh is None or restored is None or torch.is_tensor(fresh):
        return not isinstance(restored, dict | str)
    if isinstance(fresh, tuple):
        if not isinstance(restored, tuple) or len(restored) != len(fresh):
            return False
        return all(_is_alike(one, other) for one, other in zip(restored, fresh, strict=True))
    if isinstance(fresh, bool | str):
        return type(restored) is type(fresh)
    return isinstance(restored, int | float) and not isinstance(restored, bool)


def _optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """An optimizer's tensors: per parameter, and per group as timm's LAMB keeps them."""
    names = _names_of(model, optimizer)
    tensors = {
        f"{names[number]}/{what}": torch.as_tensor(value)
        for number, values in optimizer.state_dict()["state"].items()
        for what, value in values.items()
        if value is not None
    }
    for number, group in enumerate(optimizer.param_groups):
        tensors |= {f"{_GROUP}{number}/{key}": value for key, value in group.items() if torch.is_tensor(value)}
    return tensors


def _names_of(model: nn.Module, optimizer: Optimizer) -> dict[int, str]:
    """Parameter names in the order of the optimizer's groups, which numbers them; names are stabler than numbers."""
    by_identity = {id(parameter): name for name, parameter in model.named_parameters()}
    ordered = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return {number: by_identity[id(parameter)] for number, parameter in enumerate(ordered)}


def _load_pair(folder: Path, step: int) -> Checkpoint:
    file = model_file(folder, step)
    trained, weights = load_model_file(file)
    state, tensors = _read(state_file(folder, step), _STATE_KEY, RunState)
    if (trained.run, trained.step) != (state.run, state.step):
        model, other = (f"run {known.run}, step {known.step}" for known in (trained, state))
        raise UnusableFileError(f"{file} belongs to {model}, its state to {other}")
    if not 0 <= state.evaluated <= state.step <= state.steps:
        raise UnusableFileError(
            f"{file}: its state is at step {state.step} of {state.steps}, evaluated at step {state.evaluated}"
        )
    return Checkpoint(trained, weights, state, tensors, file)


def _steps(folder: Path) -> list[int]:
    """The steps that have a model file, the newest first."""
    if not folder.is_dir():
        return []
    matches = (_MODEL_FILE.match(file.name) for file in folder.iterdir())
    return sorted((int(match[1]) for match in matches if match), reverse=True)


def _read(file: Path, key: str, kind: type[Header]) -> tuple[Header, dict[str, Tensor]]:
    if not file.is_file():
        raise UnusableFileError(f"{file}: there is no such file")
    try:
        with safe_open(file, framework="pt") as content:
            header = (content.metadata() or {}).get(key)
            if header is None:
                other = "; `favor finetune FILE --model NAME` takes other weights" if key == _MODEL_KEY else ""
                raise UnusableFileError(f"{file}: not written by `favor train`{other}")
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError) as error:
        raise UnusableFileError(f"{file}: truncated, or not a safetensors file ({one_line(error)})") from error
    try:
        return kind.model_validate_json(header), tensors
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{path_text(first['loc'])}: {one_line(ValueError(first['msg']))}"
        raise UnusableFileError(f"{file}: {why}; written by another version of favor?") from error


def _write(file: Path, content: bytes) -> None:
    """Write a file atomically and sync it to disk: readers never see half a file."""
    part = file.with_name(f".{file.name}.part")
    try:
        with part.open("wb") as beside:
            beside.write(content)
            beside.flush()
            os.fsync(beside.fileno())
        part.replace(file)
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise WorkError(f"cannot write {file}: {error.strerror}; solve this, then continue with --resume") from error


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().to("cpu") for name, value in tensors.items()}
