"""What simulations are held against: the rows of timm's published speed tables, and the kernels of their networks."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import isinf
from pathlib import Path

import torch

from favor.errors import FavorError, RequestError, WorkError
from favor.measure.pretend import trace_on
from favor.measure.shapes import Uninitialised
from favor.records.schema import Record
from favor.records.timm_results import import_timm
from favor.simulate.kernels import Kernel, kernels_of
from favor.zoo.registry import create_model

_AUTOCAST = {"amp": torch.float16, "amp_fp16": torch.float16, "amp_bf16": torch.bfloat16, "fp32": None}


@dataclass(frozen=True)
class Row:
    """A row of a table: the network, how it ran, the seconds of a pass, and the counts that timm prints."""

    architecture: str
    img_size: int
    batch_size: int
    training: bool
    precision: str
    channels_last: bool
    seconds: float
    macs: float | None
    activations: float | None

    @property
    def key(self) -> str:
        """A name that no other row of a table has."""
        return f"{self.architecture}-{self.img_size}-{self.batch_size}"


@dataclass(frozen=True)
class Traced:
    """The kernels of a row's pass, each with how often it runs, and the module of timm that the network is from."""

    family: str
    kernels: tuple[Kernel, ...]
    counts: tuple[int, ...]


def rows_of(file: Path) -> list[Row]:
    """The rows of one of timm's speed tables, eager or compiled, whose conditions are in its name."""
    imported = import_timm(file)
    if imported.task not in ("inference", "training"):
        raise RequestError(f"{file.name} is a table of accuracies; a benchmark-*.csv is wanted")
    return [_row(record) for record in imported.records]


def _row(record: Record) -> Row:
    training = record.task == "training"
    batch_size = int(record.conditions["batch_size"])
    rate = record.metrics["train_throughput" if training else "throughput"].value
    return Row(
        architecture=str(record.provenance["row"]).partition(".")[0],
        img_size=int(record.conditions["img_size"]),
        batch_size=batch_size,
        training=training,
        precision=str(record.conditions["precision"]),
        channels_last=record.conditions["layout"] == "nhwc",
        seconds=batch_size / rate,
        macs=record.metrics["macs"].value if "macs" in record.metrics else None,
        activations=record.metrics["activations"].value if "activations" in record.metrics else None,
    )


def trace_row(row: Row, cache: Path | None = None) -> Traced:
    """The kernels of a row's network, from the cache folder where they are there."""
    file = None if cache is None else cache / f"{row.key}.json"
    if file is not None and file.exists():
        return _from_json(file.read_text(encoding="utf-8"))
    traced = _trace(row)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        half_written = file.with_suffix(".part")
        half_written.write_text(_to_json(traced), encoding="utf-8")
        half_written.replace(file)
    return traced


def _trace(row: Row) -> Traced:
    import timm

    if row.precision not in _AUTOCAST:
        raise RequestError(f"precision {row.precision!r} is not simulated; known: {', '.join(_AUTOCAST)}")
    if not timm.is_model(row.architecture):
        raise WorkError(f"this timm has no network {row.architecture}")
    with _half_precision_norms():
        with torch.device("meta"), Uninitialised():
            model = create_model(f"timm:{row.architecture}", num_classes=1000, img_size=row.img_size)
        trace = trace_on(
            "cuda",
            model,
            (row.batch_size, 3, row.img_size, row.img_size),
            training=row.training,
            autocast=_AUTOCAST[row.precision],
            channels_last=row.channels_last,
            subject=row.architecture,
        )
    counted = Counter(kernels_of(trace))
    return Traced(type(model).__module__.rpartition(".")[2], tuple(counted), tuple(counted.values()))


@contextmanager
def _half_precision_norms() -> Iterator[None]:
    """timm's option that keeps norms in half precision, which the tables' times show to have been on."""
    from timm.layers import is_fast_norm, set_fast_norm

    before = is_fast_norm()
    set_fast_norm(True)
    try:
        yield
    finally:
        set_fast_norm(before)


def _to_json(traced: Traced) -> str:
    kernels = [asdict(kernel) | {"reads": _finite(kernel.reads)} for kernel in traced.kernels]
    return json.dumps({"family": traced.family, "kernels": kernels, "counts": traced.counts})


def _finite(reads: tuple[tuple[int, float], ...]) -> list[tuple[int, float | None]]:
    return [(size, None if isinf(distance) else distance) for size, distance in reads]


def _from_json(text: str) -> Traced:
    data = json.loads(text)
    kernels = []
    for kernel in data["kernels"]:
        reads = tuple((size, float("inf") if distance is None else distance) for size, distance in kernel.pop("reads"))
        kernels.append(Kernel(**kernel, reads=reads))
    return Traced(data["family"], tuple(kernels), tuple(data["counts"]))


def trace_all(rows: list[Row], cache: Path | None) -> Iterator[tuple[Row, Traced | FavorError]]:
    """Every row with its kernels, or with why there are none."""
    for row in rows:
        try:
            yield row, trace_row(row, cache)
        except RequestError as error:
            if "precision" in str(error):
                raise
            yield row, error
        except WorkError as error:
            yield row, error
