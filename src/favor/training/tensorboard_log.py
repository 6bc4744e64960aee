"""TensorBoard on request: the records' metrics over the epochs."""

import importlib.util
from pathlib import Path

from favor.errors import RequestError
from favor.records.schema import Record
from favor.training.checkpoint import Checkpoint


class Board:
    """Writes each epoch's metrics; a resumed run replaces those after its checkpoint."""

    def __init__(self, folder: Path, resumed: Checkpoint | None) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        purge = None if resumed is None else int(resumed.trained.epochs * 1000) + 1
        self._writer = SummaryWriter(str(folder), purge_step=purge)

    def add(self, record: Record) -> None:
        """One point on every curve; the steps are thousandths of an epoch."""
        step = round(float(record.conditions["epochs"]) * 1000)
        for name, value in record.metrics.items():
            self._writer.add_scalar(f"{name} [{value.unit}]", value.value, step)
        self._writer.flush()


def require_tensorboard() -> None:
    """Raise an error that says what to install."""
    if importlib.util.find_spec("tensorboard") is None:
        raise RequestError("--tensorboard: tensorboard is not installed; `pip install 'favor[tensorboard]'`")
