"""A run or a study as a repository of the Hugging Face Hub: its files, and their upload."""

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import nn

from favor.errors import FavorError, RequestError, WorkError, one_line, shown
from favor.records.repeated import asked_conditions, that_counts
from favor.records.schema import Record, to_line
from favor.records.store import has_records
from favor.records.table import read_current
from favor.sharing.cards import RECORDS, Evidence, model_card, study_card
from favor.training.checkpoint import load_model_file
from favor.training.initial_weights import checkpoint_file
from favor.training.preprocessing import framing_of
from favor.training.state import Trained
from favor.zoo.cards import HUB
from favor.zoo.registry import create_model
from favor.zoo.weights import load_weights

MODEL, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_OF_THE_NETWORK = ("first_conv", "classifier", "pool_size", "fixed_input_size")
"""What timm's configs say of a network, whatever its weights are."""
RepositoryKind = Literal["model", "dataset"]


@dataclass(frozen=True)
class Repository:
    """Where to push: a model, or a dataset of records."""

    name: str
    kind: RepositoryKind

    @property
    def url(self) -> str:
        from huggingface_hub import constants

        return f"{constants.ENDPOINT}/{'datasets/' if self.kind == 'dataset' else ''}{self.name}"


def repository_name(address: str) -> str:
    """The repository that `hub:USER/NAME` names.

    >>> repository_name("hub:me/my-vit")
    'me/my-vit'
    """
    name = address.removeprefix(HUB)
    if not address.startswith(HUB) or not _REPOSITORY.fullmatch(name) or ".." in name or "--" in name:
        raise RequestError(f"--to {shown(address)}: write hub:USER/NAME, such as hub:me/vit-on-my-photos")
    return name


def is_study(path: Path) -> bool:
    """Whether a path is a study rather than the folder of a run or a model file."""
    return path.is_dir() and has_records(path)


def write_model(path: Path, repository: Repository, folder: Path) -> None:
    """Write the files of a run's repository: weights, config, records and card."""
    file = checkpoint_file(path)
    trained, _ = load_model_file(file)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, folder / MODEL)
    timm_config = _timm_config(trained, folder / MODEL)
    (folder / CONFIG).write_text(json.dumps(timm_config or _config(trained), indent=2) + "\n", encoding="utf-8")
    evidence = _evidence(file, trained)
    if evidence.records:
        (folder / RECORDS).write_bytes(b"".join(map(to_line, evidence.records)))
    text = model_card(repository.name, trained, evidence, repository.url, in_timm=timm_config is not None)
    (folder / CARD).write_text(text, encoding="utf-8")


def write_study(records: Sequence[Record], tables: Sequence[tuple[str, str]], to: Repository, folder: Path) -> None:
    """Write the files of a study's repository: all records, and a card with the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORDS).write_bytes(b"".join(map(to_line, records)))
    (folder / CARD).write_text(study_card(to.name, records, tables), encoding="utf-8")


def upload(folder: Path, to: Repository, private: bool) -> str:
    """Upload a folder in one commit, making the repository if needed; returns its address."""
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi()
    files = [CommitOperationAdd(file.name, file) for file in sorted(folder.iterdir())]
    try:
        api.create_repo(to.name, private=private, repo_type=to.kind, exist_ok=True)
        api.create_commit(to.name, files, commit_message="Upload with favor push", repo_type=to.kind)
    except HfHubHTTPError as error:
        raise WorkError(f"{HUB}{to.name}: {_refusal(error)}") from error
    except Exception as error:  # whatever the network and its library raise
        if isinstance(error, FavorError):
            raise
        raise WorkError(
            f"{HUB}{to.name}: the upload failed ({type(error).__name__}: {one_line(error)}); check the network and "
            "push again, or use --dry-run and upload the files yourself"
        ) from error
    return to.url


def _refusal(error: Any) -> str:
    status = getattr(error.response, "status_code", None)
    if status in (401, 403):
        return (
            f"the Hugging Face Hub refused the upload ({status}); run `hf auth login`, or set HF_TOKEN to a token with "
            "write access"
        )
    return f"the upload failed ({one_line(error)}); push again"


def _evidence(file: Path, trained: Trained) -> Evidence:
    """The records of the study that a run is in; none if the file is alone."""
    run, study = file.parent, file.parent.parent.parent
    if run.parent.name != "runs" or not has_records(study):
        return Evidence(None, None, ())
    records = [
        record for record in read_current(study).records if record.name == trained.model and record.status == "ok"
    ]
    of_run = [r for r in records if r.task == "accuracy" and r.environment.get("run") == run.name]
    at = [record for record in of_run if record.conditions.get("epochs") == round(trained.epochs, 4)]
    repeated: dict[tuple[object, ...], list[Record]] = defaultdict(list)
    for record in records:
        if record.task != "accuracy":
            asked = record.task, frozenset(asked_conditions(record).items())
            repeated[asked, record.environment.get("host"), record.source].append(record)
    costs = tuple(some[that_counts(some)] for some in repeated.values())
    return Evidence(at[-1] if at else None, of_run[-1] if of_run else None, costs)


def _config(trained: Trained) -> dict[str, object]:
    """What a program needs to know of the model besides its weights."""
    return {
        "library_name": "favor",
        "architecture": trained.model,
        "num_classes": len(trained.classes),
        "label_names": list(trained.classes),
        "pretrained_cfg": _preprocessing(trained),
    }


def _preprocessing(trained: Trained) -> dict[str, object]:
    recipe, framing = trained.recipe, framing_of(trained.recipe)
    return {
        "input_size": [trained.in_chans, trained.img_size, trained.img_size],
        "mean": list(recipe.mean),
        "std": list(recipe.std),
        "crop_pct": framing.crop_ratio,
        "crop_mode": "center",
        "interpolation": framing.interpolation,
        "num_classes": len(trained.classes),
    }


def _timm_config(trained: Trained, file: Path) -> dict[str, object] | None:
    """The config with which timm loads the file and gives favor's outputs; None if the network is not timm's own."""
    classes, size = len(trained.classes), trained.img_size
    ours = create_model(trained.model, num_classes=classes, img_size=size, in_chans=trained.in_chans).eval()
    if not type(ours).__module__.startswith("timm."):
        return None
    theirs_cfg: Mapping[str, Any] = ours.pretrained_cfg  # type: ignore[assignment]
    weights = load_file(file)
    load_weights(ours, weights, (size, size))
    images = torch.randn(2, trained.in_chans, size, size, generator=torch.Generator().manual_seed(0))
    for arguments in ({}, {"img_size": size}):
        if _is_same_in_timm(theirs_cfg["architecture"], trained, arguments, weights, ours, images):
            return {
                "architecture": theirs_cfg["architecture"],
                "num_classes": classes,
                "num_features": ours.num_features,
                "label_names": list(trained.classes),
                "model_args": arguments,
                "pretrained_cfg": {
                    **{key: theirs_cfg[key] for key in _OF_THE_NETWORK if key in theirs_cfg},
                    **_preprocessing(trained),
                },
            }
    return None


def _is_same_in_timm(
    architecture: str,
    trained: Trained,
    arguments: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    ours: nn.Module,
    images: torch.Tensor,
) -> bool:
    import timm

    try:
        theirs = timm.create_model(
            architecture, num_classes=len(trained.classes), in_chans=trained.in_chans, **arguments
        ).eval()
        theirs.load_state_dict(dict(weights))
        with torch.no_grad():
            return torch.allclose(theirs(images), ours(images), rtol=1e-4, atol=1e-5)
    except (TypeError, RuntimeError, AssertionError):  # timm's network has other arguments, weights or image sizes
        return False
