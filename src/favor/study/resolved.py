"""A study with every name resolved, as it is saved in its folder. Imports no torch."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator

from favor.study.schema import Budget, Load, MeasureOptions, Report, StudyPart, Trackers, Trainings, one_or_several
from favor.text import plural
from favor.training.state import FirstWeights

Command = Literal["run", "measure", "count", "train", "load"]


class PlannedModel(StudyPart):
    """A model by its name, its class of the taxonomy (null: none), and the image sizes to measure."""

    name: str
    how: str | None
    img_sizes: tuple[int, ...]


class Machine(StudyPart):
    """What a study runs on: numbers of two machines, or two versions of PyTorch, do not belong in one study.

    On a cluster `device_name`, and `label` of a GPU, are empty: jobs run on any node, and records name its device.
    """

    device: str
    label: str
    device_name: str
    torch: str
    threads: int

    @property
    def is_cluster(self) -> bool:
        """Whether its jobs run on the nodes of a cluster."""
        return not self.device_name

    def __str__(self) -> str:
        where = f"a cluster ({self.label or self.device})" if self.is_cluster else f"{self.device_name} ({self.device})"
        return f"{where}, {plural(self.threads, 'thread')}, torch {self.torch}"


def content_hash(content: Mapping[str, object]) -> str:
    """The first 16 hex digits of the SHA-256 of the canonical JSON."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


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
    train: Trainings
    first_weights: Annotated[tuple[FirstWeights, ...], BeforeValidator(one_or_several)] = ()
    """Of each training."""
    budget: Budget
    report: Report
    load: Load | None = None
    log: Trackers = ()
    checkpoint_hash: str | None = None
    """Of the content of `checkpoint`, which may be moved; None without one, and in requests of older versions."""

    @property
    def has_page(self) -> bool:
        """Whether it ends with a page."""
        return self.command == "run" and self.report.page

    @property
    def has_second_look(self) -> bool:
        """Whether models that compete for its answer are measured again, head to head; not on a cluster."""
        return self.command == "run" and "inference" in self.phases and not self.machine.is_cluster

    def to_data(self) -> dict[str, object]:
        """Plain content for YAML and JSON."""
        return self.model_dump(mode="json")

    def hash(self) -> str:
        """The content hash."""
        return content_hash(self.to_data())

    def differences(self, other: "ResolvedStudy") -> list[str]:
        """The keys in which it asks for something else than another study; where results are sent is none of them."""
        asked = (key for key in type(self).model_fields if key != "log")
        return [key for key in asked if getattr(self, key) != getattr(other, key)]
