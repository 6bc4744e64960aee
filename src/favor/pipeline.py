"""The name of a training pipeline, written and read: its recipe and what a run changed in it. Imports no torch."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

_WRITTEN = re.compile(r"(?P<recipe>.+?)@(?P<version>\d{1,9})(:(?P<file_hash>[0-9a-f]+))?(?P<changes>( \w+=.*)?)")
_CHANGE = re.compile(r" (\w+)=(.*?)(?= \w+=|$)")
_AS_JSON = str.maketrans("()", "[]")


@dataclass(frozen=True)
class Pipeline:
    """A recipe and the values of its changed keys; `minutes` end the training instead of epochs.

    `file_hash` tells what the user's recipe file says; None for a built-in recipe.

    >>> str(Pipeline("laptop-digits", 1, changes={"lr": 0.002, "clip_grad": None}))
    'laptop-digits@1 lr=0.002 clip_grad=None'
    """

    recipe: str
    version: int
    file_hash: str | None = None
    changes: Mapping[str, object] = field(default_factory=dict)
    minutes: float | None = None

    @classmethod
    def parsed(cls, text: str) -> Self | None:
        """The pipeline of this name; None for a name that favor did not write, such as `wtf-deit3`.

        >>> Pipeline.parsed("mine@1:1f3a5c7e lr=0.1 minutes=5.0")
        Pipeline(recipe='mine', version=1, file_hash='1f3a5c7e', changes={'lr': 0.1}, minutes=5.0)
        """
        found = _WRITTEN.fullmatch(text)
        if found is None:
            return None
        changes = {key: _value(value) for key, value in _CHANGE.findall(found["changes"])}
        minutes = changes.pop("minutes", None)
        if not isinstance(minutes, float | int | None):
            return None
        return cls(found["recipe"], int(found["version"]), found["file_hash"], changes, minutes)

    def __str__(self) -> str:
        named = f"{self.recipe}@{self.version}" + (f":{self.file_hash}" if self.file_hash else "")
        timed = {} if self.minutes is None else {"minutes": self.minutes}
        return " ".join(filter(None, (named, changes_text({**self.changes, **timed}))))

    @property
    def overrides(self) -> list[str]:
        """The changes as `--set` takes them.

        >>> Pipeline("laptop-digits", 1, changes={"clip_grad": None, "std": (0.5, 0.5, 0.5)}).overrides
        ['clip_grad=null', 'std=[0.5, 0.5, 0.5]']
        """
        return [
            f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in self.changes.items()
        ]


def changes_text(changes: Mapping[str, object]) -> str:
    """Changed keys as records write them."""
    return " ".join(f"{key}={value}" for key, value in changes.items())


def _value(text: str) -> object:
    if text == "None":
        return None
    try:
        value = json.loads(text.translate(_AS_JSON))
    except (ValueError, RecursionError):
        return text
    return tuple(value) if isinstance(value, list) else value
