"""The weights that a training run starts from: random ones, or those of a file."""

import argparse
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from favor.errors import MissingHereError, RequestError, one_line
from favor.regular_file import open_regular, sha256_of
from favor.runtime.names import ENDINGS
from favor.training.checkpoint import BEST, load_model_file, newest_checkpoint
from favor.training.state import FirstWeights
from favor.zoo.cards import HUB, TIMM
from favor.zoo.checkpoints import checkpoint, imagenet_classes, pretrained_weights, pushed_file
from favor.zoo.pickled_weights import check_pickled_weights
from favor.zoo.registry import card
from favor.zoo.weights import head_names, load_weights


@dataclass(frozen=True)
class Start:
    """Initial weights and the data they were trained on; None keeps the model's random initialization.

    `img_size` and `classes` are those that the weights were trained with, if known; `pipeline` and `seed` are those of
    the training runs behind them, `hash` is that of their file.
    """

    pretraining: str = "none"
    weights: Mapping[str, Tensor] | None = None
    img_size: int | None = None
    classes: tuple[str, ...] | None = None
    pipeline: str | None = None
    seed: str | None = None
    hash: str | None = None

    @property
    def described(self) -> FirstWeights:
        """The description of these weights in records."""
        return FirstWeights(**{name: getattr(self, name) for name in FirstWeights.model_fields})

    def give_weights(self, model: nn.Module, classes: tuple[str, ...]) -> str | None:
        """Load the weights into a model for these classes; returns notes for the user."""
        if self.weights is None:
            return None
        weights = self.weights
        if self.classes is not None and self.classes != classes:
            heads = tuple(f"{name}." for name in head_names(model))
            weights = {name: weight for name, weight in weights.items() if not name.startswith(heads)}
        size = self.img_size
        loaded = load_weights(model, weights, (size, size) if size else None)
        _start_at_zero(model, loaded.replaced)
        return str(loaded)


def _start_at_zero(model: nn.Module, untrained: tuple[str, ...]) -> None:
    """Let a new head start at zero: some networks' random heads have gradients that disturb all layers below."""
    for name in head_names(model):
        head = model.get_submodule(name)
        if isinstance(head, nn.Linear) and f"{name}.weight" in untrained:
            for parameter in head.parameters():
                nn.init.zeros_(parameter)


def start_from(path: Path, model: str) -> Start:
    """The weights of a file for this model: a checkpoint of favor's, or plain weights under its own or timm's names.

    `timm:ARCHITECTURE.TAG` instead of a path is a pretrained checkpoint of timm.
    """
    if str(path).startswith(TIMM):
        chosen = checkpoint(card(model).name, str(path)[len(TIMM) :])
        return Start(str(path), pretrained_weights(chosen), chosen.img_size, imagenet_classes(chosen))
    file = checkpoint_file(path)
    if is_favors(file):
        trained, weights = load_model_file(file)
        if trained.model != card(model).name:
            raise RequestError(f"{file} holds {trained.model}, not {card(model).name}; name that model")
        known = trained.as_first_weights().model_copy(update={"hash": checkpoint_hash(file)})
        return Start(weights=weights, classes=trained.classes, **known.model_dump())
    return Start(f"file:{file.name}", _plain_weights(file), hash=checkpoint_hash(file))


def checkpoint_file(path: Path) -> Path:
    """The model file at a path: the file itself, or the best (else the last) in the folder of a run.

    `hub:USER/NAME` instead of a path is a model that `favor push` uploaded.
    """
    if str(path).startswith(HUB):
        return Path(pushed_file(str(path)))
    if path.is_dir():
        if (path / BEST).is_file():
            return path / BEST
        checkpoint, _ = newest_checkpoint(path)
        if checkpoint is None:
            runs = sorted(best.parent for pattern in ("*", "runs/*") for best in path.glob(f"{pattern}/{BEST}"))
            such_as = f", such as {runs[0]}" if runs else ""
            raise RequestError(f"{path}: no checkpoint in this folder; give a file or the folder of a run{such_as}")
        return checkpoint.file
    if path.suffix in ENDINGS.values():
        raise RequestError(
            f"{path}: a file of `favor export`, not a checkpoint; name the model, the checkpoint or the run that it is "
            "from"
        )
    if not path.is_file():
        raise MissingHereError(f"{path}: there is no such file; give a checkpoint or the folder of a run")
    return path


def checkpoint_hash(path: Path) -> str:
    """The first 16 hex digits of the SHA-256 of the model file at a path."""
    return sha256_of(checkpoint_file(path))[:16]


def model_of(path: Path) -> str:
    """The model that a checkpoint holds."""
    file = checkpoint_file(path)
    if not is_favors(file):
        raise RequestError(f"{file}: not written by `favor train`, so it does not name its model; add --model NAME")
    return load_model_file(file)[0].model


def is_favors(file: Path) -> bool:
    """Whether a file is a checkpoint of favor, even a truncated one, which is then refused with a reason."""
    if file.suffix != ".safetensors":
        return False
    with open_regular(file) as content:
        return b"favor.trained" in content.read(4096)


def _plain_weights(file: Path) -> dict[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        check_pickled_weights(file)
        with torch.serialization.safe_globals([argparse.Namespace]):  # of training scripts, beside the weights
            content = torch.load(file, map_location="cpu", weights_only=True)
    except RequestError:
        raise
    except pickle.UnpicklingError as error:
        raise RequestError(
            f"{file}: a pickle with more than weights, which favor does not execute; save its weights as safetensors"
        ) from error
    except Exception as error:  # PyTorch may raise anything on a malformed file
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise RequestError(
            f"{file}: cannot be read as weights; truncated, or another kind of file ({reason})"
        ) from error
    for key in ("state_dict", "model"):
        content = content.get(key, content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and torch.is_tensor(value) for name, value in content.items()
    ):
        raise RequestError(f"{file}: not a dict of weights by name")
    return content
