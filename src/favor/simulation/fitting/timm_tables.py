"""The ground truth of simulations: the rows of timm's published speed tables, and the kernels of their models."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.resources import files
from math import isinf
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import nn

from favor.errors import FavorError, RequestError, WorkError
from favor.records.schema import Record
from favor.records.timm_results import import_timm
from favor.simulation.fused_kernels import fused_kernels_of, wants_channels_last
from favor.simulation.kernels import Kernel, kernels_of
from favor.trace.fake_device import trace_on
from favor.trace.meta_shortcuts import SkipInitialization
from favor.trace.operator_trace import Trace
from favor.trace.optimizer import steps_on_device, trace_update
from favor.zoo.registry import create_model


@dataclass(frozen=True)
class _Numbers:
    """A precision of the tables: the dtype of the weights, and that of automatic mixed precision."""

    weights: torch.dtype
    autocast: torch.dtype | None


_PRECISIONS = {
    "amp-fp16": _Numbers(torch.float32, torch.float16),
    "amp-bf16": _Numbers(torch.float32, torch.bfloat16),
    "fp32": _Numbers(torch.float32, None),
    "fp16": _Numbers(torch.float16, None),
    "bf16": _Numbers(torch.bfloat16, None),
}

TRACING_CODE = (
    *(
        "simulation/fitting/timm_tables.py",
        "simulation/fused_kernels.py",
        "simulation/kernels.py",
        "simulation/networks.py",
    ),
    *("simulation/tiles.py", "trace/dispatch.py", "trace/fake_device.py", "trace/shape_cache.py"),
    *("trace/meta_shortcuts.py", "trace/operator_trace.py"),
)
"""The files that make traces, beside the counting rules."""


@dataclass(frozen=True)
class Row:
    """A row of a table: the model, its conditions, the seconds of a pass, and timm's counts."""

    architecture: str
    device: str
    torch_version: str
    img_size: int
    batch_size: int
    training: bool
    precision: str
    channels_last: bool
    compiled: bool
    seconds: float
    macs: float | None
    activations: float | None
    by_timm: bool

    @property
    def key(self) -> str:
        """A unique name within a table."""
        return f"{self.architecture}-{self.img_size}-{self.batch_size}"

    @property
    def version(self) -> tuple[int, ...]:
        """The version of PyTorch as numbers, such as (2, 4)."""
        return _number_of(self.torch_version)

    @property
    def is_fused(self) -> bool:
        """Whether it is simulated as compiled; training steps are always simulated as eager."""
        return self.compiled and not self.training

    @property
    def conditions(self) -> str:
        """The conditions that the kernels depend on, the same for all rows of a table."""
        phase = "training" if self.training else "inference"
        layout = "nhwc" if self.channels_last else "nchw"
        attention = "half" if _attends_in_half(self.torch_version) else "float32"
        fused = "" if _number_of(self.torch_version) >= (2, 0) else ", none of it fused"
        script = "by timm's script" if self.by_timm else "as PyTorch has it"
        compiled = "compiled " if self.is_fused else ""
        return f"{compiled}{phase} {self.precision} {layout} {script}, attention in {attention}{fused}"


@dataclass(frozen=True)
class Traced:
    """The kernels of a row's pass with their counts, and the timm module (family) of the model."""

    family: str
    kernels: tuple[Kernel, ...]
    counts: tuple[int, ...]


def rows_of(file: Path, *, by_timm: bool = True) -> list[Row]:
    """The rows of one of timm's speed tables, eager or compiled; the file name gives the conditions.

    timm's script keeps norms in half precision under autocast and allows TF32 for all products. Tables of others in the
    same format follow PyTorch's defaults unless stated otherwise: norms in float32, and TF32 for convolutions only.
    """
    imported = import_timm(file)
    if not imported.records:
        raise RequestError(f"{file.name} has no readable row")
    if imported.records[0].task not in ("inference", "training"):
        raise RequestError(f"{file.name} is a table of accuracies; give a benchmark-*.csv")
    if not {"cuda", "rocm"} & imported.records[0].environment.keys():
        raise RequestError(f"{file.name} is a table of a CPU; only GPUs are simulated")
    rows = [_row(record, by_timm) for record in imported.records]
    for row in rows:
        if row.precision not in _PRECISIONS:
            raise RequestError(f"precision {row.precision!r} is not simulated; known: {', '.join(_PRECISIONS)}")
    return rows


def _row(record: Record, by_timm: bool) -> Row:
    training = record.task == "training"
    batch_size = int(record.conditions["batch_size"])
    rate = record.metrics["train_throughput" if training else "throughput"].value
    return Row(
        architecture=str(record.provenance["row"]).partition(".")[0],
        device=str(record.conditions["device"]),
        torch_version=str(record.environment["torch"]),
        img_size=int(record.conditions["img_size"]),
        batch_size=batch_size,
        training=training,
        precision=str(record.conditions["precision"]),
        channels_last=record.conditions["layout"] == "nhwc",
        compiled=record.conditions["runtime"] == "compile",
        seconds=batch_size / rate,
        macs=record.metrics["macs"].value if "macs" in record.metrics else None,
        activations=record.metrics["activations"].value if "activations" in record.metrics else None,
        by_timm=by_timm,
    )


def trace_row(row: Row, cache: Path | None = None) -> Traced:
    """The kernels of a row's model, from the cache folder if they are there."""
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

    if not timm.is_model(row.architecture):
        raise WorkError(f"this timm has no model {row.architecture}")
    try:
        with torch.device("meta"), SkipInitialization(), _attention_layers_of(row.torch_version):
            model = create_model(f"timm:{row.architecture}", num_classes=1000, img_size=row.img_size)
    except RuntimeError as error:  # for old names, whose weights timm has dropped
        raise WorkError(f"this timm cannot build {row.architecture}: {error}") from error
    if row.by_timm:
        _keep_norms_in_half_precision(model)
    trace = _trace_of(row, model.to(_PRECISIONS[row.precision].weights), row.channels_last)
    if row.is_fused:
        if not row.channels_last and wants_channels_last(trace):
            trace = _trace_of(row, model, channels_last=True)
        kernels = fused_kernels_of(trace)
    else:
        kernels = kernels_of(trace.steps)
    if row.training:
        kernels += kernels_of(steps_on_device(_update(model, row)))
    counted = Counter(map(_with_tf32, kernels) if row.by_timm else kernels)
    return Traced(type(model).__module__.rpartition(".")[2], tuple(counted), tuple(counted.values()))


def _trace_of(row: Row, model: nn.Module, channels_last: bool) -> Trace:
    numbers = _PRECISIONS[row.precision]
    with _attention_of(row.torch_version):
        return trace_on(
            "cuda",
            model,
            (row.batch_size, 3, row.img_size, row.img_size),
            training=row.training,
            autocast=numbers.autocast,
            dtype=numbers.weights,
            channels_last=channels_last,
            subject=row.architecture,
        )


def _update(model: nn.Module, row: Row) -> Trace:
    """The optimizer update in timm's script; before PyTorch 2.0 it runs tensor by tensor."""
    make = partial(torch.optim.SGD, lr=1e-4, momentum=0.9, nesterov=True)
    return trace_update(model, make, row.architecture, many_at_once=_number_of(row.torch_version) >= (2, 0))


def _with_tf32(kernel: Kernel) -> Kernel:
    """The kernel as timm's script runs it, which allows TF32 for all float32 products."""
    return replace(kernel, unit="tf32") if kernel.unit == "fp32" else kernel


def _keep_norms_in_half_precision(model: nn.Module) -> None:
    """Switch on timm's fast norms, which the tables' times show were used.

    Not by timm's global option, with which models that run parts of themselves when built cannot be on meta.
    """
    for module in model.modules():
        if "_fast_norm" in vars(module):
            vars(module)["_fast_norm"] = True


@contextmanager
def _attention_layers_of(version: str) -> Iterator[None]:
    """Build timm's layers as for a version of PyTorch: before 2.0 without fused attention."""
    from timm.layers import set_fused_attn, use_fused_attn

    before = {"enable": use_fused_attn(), "experimental": use_fused_attn(experimental=True)}
    if _number_of(version) < (2, 0):
        set_fused_attn(enable=False)
    try:
        yield
    finally:
        set_fused_attn(**before)


@contextmanager
def _attention_of(version: str) -> Iterator[None]:
    """Unfused attention as a version of PyTorch computes it: in float32 from 2.5 on, before in half precision."""
    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(_attends_in_half(version))
    try:
        yield
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)


def _attends_in_half(version: str) -> bool:
    return _number_of(version) < (2, 5)


def _number_of(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


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
        others = tuple((macs, blocks) for macs, blocks in kernel.pop("other_cuts"))
        kernels.append(Kernel(**kernel, reads=reads, other_cuts=others))
    return Traced(data["family"], tuple(kernels), tuple(data["counts"]))


@dataclass(frozen=True)
class Judged:
    """The accuracy of simulated times: rank correlation, and relative errors."""

    spearman: float
    median: float
    p90: float


def judged(simulated: np.ndarray, true: np.ndarray) -> Judged:
    """The accuracy of simulated times.

    >>> judged(np.array([1.1, 2.2, 3.3]), np.array([1.0, 2.0, 3.0])).spearman
    1.0
    """
    error = np.abs(simulated / true - 1)
    rank = float(spearmanr(simulated, true)[0])
    return Judged(rank, float(np.median(error)), float(np.quantile(error, 0.9)))


def traced_rows(rows: list[Row], cache: Path | None) -> tuple[list[Row], list[Traced], list[str]]:
    """The rows that can be traced, their traces, and why the others cannot."""
    kept, traced, left_out = [], [], []
    for row, found in trace_all(rows, cache):
        if isinstance(found, Traced):
            kept.append(row)
            traced.append(found)
        else:
            left_out.append(f"{row.key}: {found}")
    return kept, traced, left_out


def trace_all(rows: list[Row], cache: Path | None) -> Iterator[tuple[Row, Traced | FavorError]]:
    """Every row of a table with its kernels, or the reason why it cannot be traced."""
    if cache is not None and rows:
        _claim(cache, rows[0].conditions)
    for row in rows:
        try:
            yield row, trace_row(row, cache)
        except FavorError as error:
            yield row, error


def _claim(cache: Path, conditions: str) -> None:
    """Refuse a cache folder with traces under other conditions: they have the same names."""
    conditions = f"{conditions}, by the rules {_digest()}"
    told = cache / "conditions.txt"
    if not told.exists():
        cache.mkdir(parents=True, exist_ok=True)
        told.write_text(conditions, encoding="utf-8")
    elif (before := told.read_text(encoding="utf-8")) != conditions:
        raise RequestError(f"{cache} has traces of {before}, but these are {conditions}; choose another folder")


def _digest() -> str:
    """A short hash of the code that makes traces."""
    import timm

    package = files("favor")
    rules = sorted(f"trace/rules/{file.name}" for file in (package / "trace/rules").iterdir())
    made_by = hashlib.sha256(f"{torch.__version__} {timm.__version__}".encode())
    for name in (*TRACING_CODE, *rules):
        if name.endswith(".py"):
            made_by.update((package / name).read_bytes())
    return made_by.hexdigest()[:12]
