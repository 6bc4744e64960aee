"""Downloads by torchvision, once, into the user's cache folder."""

from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from favor.cache_folder import cache_folder
from favor.data.names import NamedSet, missing
from favor.errors import WorkError, one_line

_FOLDERS = {
    "cifar10": ("CIFAR10", "cifar-10-batches-py"),
    "cifar100": ("CIFAR100", "cifar-100-python"),
    "fashion-mnist": ("FashionMNIST", "FashionMNIST/raw"),
    "flowers102": ("Flowers102", "flowers-102"),
}
"""torchvision's class of the set, and the folder that it creates."""


def require_downloaded(known: NamedSet) -> None:
    """Refuse a set that was not downloaded before."""
    _require_download(known)
    if not _mark_of(known).exists():
        raise missing(known, "`favor run` without --dry-run downloads it")


def downloaded(known: NamedSet, fetch: Callable[[str, Path], None] | None = None) -> Path:
    """The folder of the set, downloaded if missing."""
    _require_download(known)
    class_name, folder = _FOLDERS[known.name]
    done = _mark_of(known)
    root = done.parent
    if not done.exists():
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WorkError(
                f"{known.name} cannot be downloaded into {root}: {error.strerror}; set XDG_CACHE_HOME to another folder"
            ) from error
        try:
            (fetch or _fetch)(class_name, root)
        except (OSError, RuntimeError, HTTPException) as error:
            raise missing(known, f"the download failed: {type(error).__name__}: {one_line(error)}") from error
        done.touch()
    return root / folder


def _require_download(known: NamedSet) -> None:
    if known.name not in _FOLDERS:
        raise missing(known, f"only {', '.join(_FOLDERS)} can be downloaded")


def _mark_of(known: NamedSet) -> Path:
    """The file that says that a set was downloaded."""
    return cache_folder() / "downloads" / f"{known.name}.complete"


def _fetch(class_name: str, root: Path) -> None:
    from torchvision import datasets  # type: ignore[import-untyped]

    getattr(datasets, class_name)(root, download=True)
