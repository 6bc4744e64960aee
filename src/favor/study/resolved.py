"""A study with every name resolved, as it is saved in its folder. Imports no torch."""

import hashlib
import json
from typing import Literal

from favor.study.schema import Budget, MeasureOptions, Report, StudyPart, Train

Command = Literal["run", "measure", "count", "train"]


class PlannedModel(StudyPart):
    """A model by its name, its class of the taxonomy (null: none), and the image sizes to measure."""

    name: str
    how: str | None
    img_sizes: tuple[int, ...]


class Machine(StudyPart):
    """What a study runs on: numbers of two machines, or two versions of PyTorch, do not belong in one study."""

    device: str
    label: str
    device_name: str
    torch: str
    threads: int

    def __str__(self) -> str:
        return f"{self.device_name} ({self.device}), {self.threads} threads, torch {self.torch}"


class FirstWeights(StudyPart):
    """The pretraining of the initial weights, and its image size; none for random weights."""

    pretraining: str = "none"
    img_size: int | None = None


class ResolvedStudy(MeasureOptions):
    """A study without patterns, defaults or relative paths, so that equal studies are the same request.

    `command` is the command that made it: studies of `favor run` end with an answer and a page.
    """

    name: str
    command: Command = "run"
    models: tuple[PlannedModel, ...]
    plugins: tuple[str, ...]
    phases: tuple[str, ...]
    machine: Machine
    train: Train | None
    first_weights: FirstWeights = FirstWeights()
    budget: Budget
    report: Report

    @property
    def has_page(self) -> bool:
        """Whether it ends with a page."""
        return self.command == "run" and self.report.page

    def to_data(self) -> dict[str, object]:
        """Plain content for YAML and JSON."""
        return self.model_dump(mode="json")

    def hash(self) -> str:
        """The content hash: the first 16 hex digits of the SHA-256 of its canonical JSON."""
        canonical = json.dumps(self.to_data(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def differences(self, other: "ResolvedStudy") -> list[str]:
        """The keys in which it differs from another study."""
        return [key for key in type(self).model_fields if getattr(self, key) != getattr(other, key)]
