"""Which vision transformer to favor, on your hardware, under your limits.

>>> import favor
>>> model = favor.create_model("vit_s16", num_classes=10)
>>> favor.count("vit_s16").params
22059496

Names are imported on first use, so that `import favor` is fast and analyses do not need torch.
"""

import importlib
from typing import TYPE_CHECKING

from favor.version import __version__

if TYPE_CHECKING:
    from favor.api import Records, TrainingRun, count, load_records, measure, pareto, recommend, simulate, train
    from favor.zoo.fuse import fuse
    from favor.zoo.registry import card, create_model, list_models, load_plugin, register
    from favor.zoo.weights import load_weights

_HOMES = {
    "Records": "favor.api",
    "TrainingRun": "favor.api",
    "card": "favor.zoo.registry",
    "count": "favor.api",
    "create_model": "favor.zoo.registry",
    "fuse": "favor.zoo.fuse",
    "list_models": "favor.zoo.registry",
    "load_plugin": "favor.zoo.registry",
    "load_records": "favor.api",
    "load_weights": "favor.zoo.weights",
    "measure": "favor.api",
    "pareto": "favor.api",
    "recommend": "favor.api",
    "register": "favor.zoo.registry",
    "simulate": "favor.api",
    "train": "favor.api",
}

__all__ = [
    "Records",
    "TrainingRun",
    "__version__",
    "card",
    "count",
    "create_model",
    "fuse",
    "list_models",
    "load_plugin",
    "load_records",
    "load_weights",
    "measure",
    "pareto",
    "recommend",
    "register",
    "simulate",
    "train",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'favor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
