"""Experiment trackers: the numbers of records in TensorBoard, Weights & Biases, MLflow or Trackio.

The study's records do not depend on them. A tracker that fails during a training run is dropped with a warning. The
measurements of a study are sent by `favor.study.sent_results`.
"""

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from favor.errors import MissingHereError, RequestError, one_line, unknown_name
from favor.records.schema import Record, Scalar
from favor.training.callbacks import Audience, StepNews

How = Literal["done", "stopped", "failed"]
SECONDS_TO_FINISH = 60.0
"""How long a tracker may upload after the training, before what is left stays on this machine."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers show it: under the name of its study, with the settings of its records."""

    id: str
    name: str
    study: str
    folder: Path
    settings: Mapping[str, Scalar]
    resumed_from: int | None
    """The step that the run was resumed from."""
    is_curve: bool = True
    """Whether it has a point per epoch, and not one measurement only."""


class Tracker(Protocol):
    """A service or a folder that shows curves; `step` counts optimizer steps."""

    def add(self, record: Record, step: int) -> None: ...

    def close(self, how: How) -> None: ...


class TensorBoard:
    """Event files in `tensorboard/` beside the checkpoints; a resumed run replaces what came after its checkpoint.

    A single measurement is a row of the HParams table.
    """

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.folder / "tensorboard"
        if not run.is_curve:
            folder /= "".join(c if c.isalnum() or c in "-_.+" else "_" for c in f"{run.name}-{run.id[:8]}")
        purge = None if run.resumed_from is None else run.resumed_from + 1
        self._settings = None if run.is_curve else dict(run.settings)
        self._writer = SummaryWriter(str(folder), purge_step=purge)

    def add(self, record: Record, step: int) -> None:
        values = {f"{name} [{reading.unit}]": reading.value for name, reading in record.metrics.items()}
        if self._settings is not None:
            self._writer.add_hparams(self._settings, values, run_name=".")
            return
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self, how: How) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of the project WANDB_PROJECT, or of one with the study's name; its files are in `wandb/`."""

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        settings = wandb.Settings(silent=True, console="off", finish_timeout=SECONDS_TO_FINISH)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or run.study,
            id=run.id,
            name=run.name,
            dir=run.folder,
            config=dict(run.settings),
            resume="allow",
            settings=settings,
        )

    def add(self, record: Record, step: int) -> None:
        self._run.log(_values(record), step=step)

    def close(self, how: How) -> None:
        self._run.finish(exit_code=int(how != "done"))


class MLflow:
    """A run of the experiment MLFLOW_EXPERIMENT_NAME, or of one with the study's name, at MLFLOW_TRACKING_URI."""

    _statuses: Mapping[How, str] = {"done": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}

    def __init__(self, run: TrackedRun) -> None:
        # The default of several minutes per call would keep the training waiting for a server that is gone.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        from mlflow import MlflowClient

        self._client = MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or run.study
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        runs = self._client.search_runs([experiment], f"tags.`favor.run` = '{run.id}'")
        if runs:
            self._run = runs[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            if run.is_curve:
                return  # another resumption may have other settings, which MLflow refuses
        else:
            self._run = self._client.create_run(experiment, run_name=run.name, tags={"favor.run": run.id}).info.run_id
        for key, value in run.settings.items():
            self._client.log_param(self._run, key, value)

    def add(self, record: Record, step: int) -> None:
        for name, value in _values(record).items():
            self._client.log_metric(self._run, name, value, step=step)

    def close(self, how: How) -> None:
        self._client.set_terminated(self._run, self._statuses[how])


class Trackio:
    """A run of the project with the study's name, in the folder TRACKIO_DIR."""

    def __init__(self, run: TrackedRun) -> None:
        import trackio

        # Trackio knows runs by their names only.
        self._run = trackio.init(
            project=run.study, name=f"{run.name}-{run.id[:8]}", config=dict(run.settings), resume="allow"
        )

    def add(self, record: Record, step: int) -> None:
        self._run.log(_values(record), step=step)

    def close(self, how: How) -> None:
        import trackio

        trackio.finish()  # not that of the run, which Trackio would then finish again at its next start and at exit


TRACKERS: Mapping[str, Callable[[TrackedRun], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
    "trackio": Trackio,
}
"""Tracker by the name of its Python package, which is also that of favor's extra."""
_REMEDIES = {
    "wandb": "`wandb login`, or set WANDB_MODE=offline",
    "mlflow": "set MLFLOW_TRACKING_URI to your server or to sqlite:///FILE",
}


def require_trackers(names: Sequence[str]) -> None:
    """Refuse trackers whose packages are missing, and say what to install."""
    for name in names:
        if name not in TRACKERS:
            raise unknown_name("tracker", name, TRACKERS, "choose from " + ", ".join(TRACKERS))
        package = importlib.util.find_spec(name)
        if package is None or package.origin is None:  # a folder of the same name, as wandb makes it, has no origin
            raise MissingHereError(f"--log {name}: {name} is not installed; `pip install 'favor[{name}]'`")


@contextmanager
def tracked(names: Sequence[str], run: TrackedRun, audience: Audience) -> Iterator[Audience]:
    """The audience of a training run together with trackers, which are closed when it ends.

    A tracker that does not start is refused, except when the run was already under way.
    """
    require_trackers(names)
    heard = _Tracked(audience)
    for name in names:
        try:
            heard.trackers[name] = TRACKERS[name](run)
        except Exception as error:
            if run.resumed_from is None:
                remedy = f"{_REMEDIES[name]}, or leave" if name in _REMEDIES else "leave"
                raise RequestError(f"--log {name} cannot start ({error_text(error)}); {remedy} it out") from error
            heard.warn(name, error)
    how: How = "failed"
    try:
        yield heard
        how = "stopped" if heard.is_stopped else "done"
    finally:
        heard.each(lambda tracker: tracker.close(how))


class _Tracked:
    """Passes on what it hears, and gives the trackers a point on every curve after each epoch."""

    def __init__(self, audience: Audience) -> None:
        self._audience = audience
        self.trackers: dict[str, Tracker] = {}
        self.is_stopped = True
        """Whether the last epoch has not been evaluated."""

    def note(self, text: str) -> None:
        self._audience.note(text)

    def stepped(self, news: StepNews) -> None:
        self._audience.stepped(news)

    def evaluated(self, record: Record, news: StepNews) -> None:
        self._audience.evaluated(record, news)
        self.is_stopped = record.conditions.get("final") is not True  # an early stop is an end, too
        self.each(lambda tracker: tracker.add(record, news.step))

    def each(self, do: Callable[[Tracker], Any]) -> None:
        """Do something with every tracker; one that fails is dropped."""
        for name, tracker in list(self.trackers.items()):
            try:
                do(tracker)
            except Exception as error:  # noqa: BLE001 - whatever a tracker raises must not end the training
                del self.trackers[name]
                self.warn(name, error)

    def warn(self, name: str, error: Exception) -> None:
        said = error_text(error)
        self.note(f"warning: --log {name} failed ({said}); training continues, and its records are complete")


def _values(record: Record) -> dict[str, float]:
    """The record's metrics in the units of docs/metrics.md; for a training run, also the epochs so far."""
    epochs = {"epochs": float(record.conditions["epochs"])} if "epochs" in record.conditions else {}
    return epochs | {name: reading.value for name, reading in record.metrics.items()}


def error_text(error: Exception) -> str:
    """A tracker's error on one line."""
    return f"{type(error).__name__}: {one_line(error)}"
