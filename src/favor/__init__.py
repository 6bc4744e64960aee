"""Which vision transformer to favor, on your hardware, under your limits.

>>> import favor
>>> model = favor.create_model("vit_s16", num_classes=10)

What is named here is imported when it is first used, so that `import favor` costs nothing and analyses need no torch.
"""

import importlib
from typing import TYPE_CHECKING

from favor.version import __version__

if TYPE_CHECKING:
    from favor.records.table import load
    from favor.zoo.fuse import fuse
    from favor.zoo.registry import card, create_model, list_models, load_plugin, register
    from favor.zoo.weights import load_weights

_HOMES = {
    "card": "favor.zoo.registry",
    "create_model": "favor.zoo.registry",
    "fuse": "favor.zoo.fuse",
    "list_models": "favor.zoo.registry",
    "load": "favor.records.table",
    "load_plugin": "favor.zoo.registry",
    "load_weights": "favor.zoo.weights",
    "register": "favor.zoo.registry",
}

__all__ = [
    "__version__",
    "card",
    "create_model",
    "fuse",
    "list_models",
    "load",
    "load_plugin",
    "load_weights",
    "register",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'favor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
