"""The executor for Ray: each allocation is a task, and this process waits for them."""

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from favor.errors import MissingHereError, RequestError, one_line
from favor.machine.process import STOP_SECONDS
from favor.study.allocation import Allocation
from favor.study.allocation_worker import Work, work_on
from favor.study.resolved import ResolvedStudy
from favor.study.schema import ExecutorOptions
from favor.study.submission import new_submission
from favor.units import format_quantity

RETRIES = 3
"""How often a task restarts if its worker or node is lost; a training run continues from its last checkpoint."""

LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class Resources:
    """What a task asks Ray for; `memory` is in bytes."""

    num_cpus: float
    num_gpus: float
    memory: int | None

    def __str__(self) -> str:
        memory = "" if self.memory is None else f" and {format_quantity(self.memory, 'B')} of memory"
        return f"{self.num_cpus:g} CPUs, {self.num_gpus:g} GPUs{memory}"

    def fit(self, node: Mapping[str, float]) -> bool:
        """Whether a node with these resources (Ray's names) has enough for it."""
        asked = (("CPU", self.num_cpus), ("GPU", self.num_gpus), ("memory", self.memory or 0))
        return all(node.get(name, 0.0) >= amount for name, amount in asked)


@dataclass(frozen=True)
class RayExecutor:
    """Runs allocations of a study as Ray tasks; `folder` is the study's, which all nodes share."""

    folder: Path
    study: ResolvedStudy
    options: ExecutorOptions

    def resources(self, allocation: Allocation, largest_node: float) -> Resources:
        """A measurement has a GPU, or all processors of a node, for itself; a training run has a process per GPU."""
        options = self.options
        gpus = options.gpus_per_node if allocation.trains else min(1, options.gpus_per_node)
        alone = allocation.measures and not gpus
        cpus = largest_node if alone else float(options.cpus_per_task * max(1, gpus))
        return Resources(cpus, float(gpus), options.memory)

    def run(
        self,
        allocations: Sequence[Allocation],
        repeats: bool,
        on_look: Callable[[], None],
        on_note: Callable[[str], None],
    ) -> None:
        """Run the allocations; an allocation that fails is reported, and its jobs stay undone.

        Ctrl-C lets training runs save a checkpoint.
        """
        ray = require_ray()
        study, gpus = self.study, self.options.gpus_per_node
        with _connected(ray, self.options.address):
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            largest = max(node.get("CPU", 0.0) for node in nodes)
            for asked in dict.fromkeys(self.resources(allocation, largest) for allocation in allocations):
                if not any(asked.fit(node) for node in nodes):
                    on_note(f"warning: no node of the Ray cluster has {asked}; such tasks wait until one joins")
            submission = new_submission(self.folder, "ray", allocations, repeats)
            task = ray.remote(max_retries=RETRIES)(_run_on_node)
            waiting = [
                Work(self.folder, submission, index, allocation, study.machine, study.plugins, gpus or None)
                for index, allocation in enumerate(allocations)
            ]
            running: dict[Any, Work] = {}
            try:
                while waiting or running:
                    while waiting and len(running) < (self.options.at_once or len(allocations)):
                        work = waiting.pop(0)
                        asked = self.resources(work.allocation, largest)
                        limits = {} if asked.memory is None else {"memory": asked.memory}
                        with_resources = task.options(num_cpus=asked.num_cpus, num_gpus=asked.num_gpus, **limits)
                        running[with_resources.remote(work)] = work
                    ended, _ = ray.wait(list(running), timeout=LOOK_SECONDS)
                    for reference in ended:
                        _report(ray, reference, running.pop(reference), on_note)
                    on_look()
            except KeyboardInterrupt:
                for reference in running:
                    ray.cancel(reference)
                ray.wait(list(running), num_returns=len(running), timeout=STOP_SECONDS)
                raise


def _run_on_node(work: Work) -> None:
    work_on(work, cluster="ray", node=platform.node())


def _report(ray: Any, reference: Any, work: Work, on_note: Callable[[str], None]) -> None:
    try:
        ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        on_note(f"{', '.join(map(str, work.allocation.jobs))}: {one_line(error.cause)}")
    except ray.exceptions.RayError as error:
        on_note(f"{', '.join(map(str, work.allocation.jobs))}: lost {RETRIES + 1} times: {one_line(error)}")


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """A connection to a Ray cluster; without an address, a Ray on this machine for as long as it lasts."""
    paths = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    with redirect_stdout(sys.stderr):  # Ray reports lost workers on stdout, which is for data
        try:
            ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level="error",
                runtime_env={"env_vars": paths} if paths else None,
                **({} if address else {"include_dashboard": False}),
            )
        except Exception as error:  # Ray raises just that if its own processes do not start in time
            raise RequestError(f"no Ray cluster at {address or 'this machine'}: {one_line(error)}") from error
        try:
            yield
        finally:
            ray.shutdown()


def require_ray() -> Any:
    """The package ray; an error says what to install."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingHereError("the executor ray needs ray; install it with `pip install favor[ray]`") from error
    return ray
