"""Make src/favor/simulation/timm_simulated.csv.gz: timm's networks on every built-in device, inference with amp.

python benchmarks/make_timm_simulated.py --keep DIR        40 minutes of processor time; 15 with the traces in DIR

Each network is simulated at every image size at which timm publishes an accuracy. Run it again when a device, the
calibration or the accuracies change. DIR keeps the traces, so that a changed calibration needs no new ones, and the
results, so that a stopped run can continue. Changed code starts both over where it could change them.
"""

import argparse
import gc
import hashlib
import pickle
import time
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import torch
from msgspec.structs import replace
from torch import nn

from favor.errors import RequestError
from favor.records.schema import CardFields, Record, reading
from favor.records.store import FILE_NAME as STUDY_FILE
from favor.records.store import append, read
from favor.records.timm_results import accuracy_records, shipped_architectures
from favor.simulation.calibration import shipped_calibration
from favor.simulation.devices import built_in_devices
from favor.simulation.networks import Network, network
from favor.simulation.shipped_timm import FILE_NAME, to_bytes
from favor.simulation.simulation import SimulationRequest, simulate
from favor.trace.conditions import Phase
from favor.trace.operator_trace import Trace

COUNTED = "counted on the operator trace"
PACKAGE = Path(__file__).parent.parent / "src" / "favor"
# What a trace depends on, and what a simulation depends on beside its trace.
TRACING = ("trace/**/*.py", "simulation/networks.py", "zoo/timm_models.py", "zoo/fuse.py")
PRICING = ("simulation/[!s]*.py", "simulation/s[!h]*.py", "simulation/calibration.json", "simulation/devices/*.yaml")


@dataclass(frozen=True)
class TracedNetwork(Network):
    """A network with its traces so far; it is built only if another one is needed."""

    traces: dict[int, Trace] = field(default_factory=dict)

    def trace(self, batch_size: int) -> Trace:
        if batch_size not in self.traces:
            self.traces[batch_size] = self._built.trace(batch_size)
        return self.traces[batch_size]

    @property
    def _built(self) -> Network:
        return _network(self.name, self.phase, self.precision, self.img_size)


@lru_cache(maxsize=1)
def _network(name: str, phase: Phase, precision: str, img_size: int) -> Network:
    return network(name, phase, precision, img_size)


@dataclass(frozen=True)
class Job:
    """One network at an image size, and the file of its traces."""

    name: str
    img_size: int
    traces: Path

    def records(self) -> list[Record]:
        file = self.traces / f"{self.name.removeprefix('timm:')}@{self.img_size}.pickle"
        # Only this script writes there.
        traces: dict[int, Trace] = pickle.loads(zlib.decompress(file.read_bytes())) if file.exists() else {}  # noqa: S301
        known = set(traces)

        def build(name: str, phase: Phase, precision: str, img_size: int, *_: object) -> Network:
            return TracedNetwork(name, phase, img_size, precision, nn.Identity(), traces=traces)

        request = SimulationRequest(img_size=self.img_size)
        found = simulate(self.name, built_in_devices(), request, shipped_calibration(), build=build)
        if set(traces) != known:
            part = file.with_suffix(".part")
            part.write_bytes(zlib.compress(pickle.dumps(traces, protocol=5)))
            part.rename(file)
        return [with_macs(record, traces) for record in found]


def with_macs(record: Record, traces: Mapping[int, Trace]) -> Record:
    """The record with the multiply-adds of one image."""
    batch_size = min(traces, default=1)
    work = [op.work for op in traces[batch_size].ops] if traces else []
    macs = sum(one.macs_matmul + one.fft_flops / 2 for one in work) / batch_size
    return replace(record, metrics=dict(record.metrics) | {"macs": reading("macs", round(macs), method=COUNTED)})


def done(job: Job) -> tuple[Job, list[Record], str]:
    """A job's records, or why it was refused."""
    try:
        return job, job.records(), ""
    except RequestError as error:
        return job, [], str(error)


def promising_first() -> list[tuple[str, int]]:
    """Every network at every image size with an accuracy; first those that few others beat in accuracy and size."""
    found: dict[tuple[str, int], tuple[float, float]] = {}
    for architecture in shipped_architectures():
        for record in accuracy_records(f"timm:{architecture}", CardFields(), [architecture]):
            key = record.name, int(record.conditions["img_size"])
            cost = record.metrics["params"].value * key[1] ** 2
            found[key] = cost, max(record.metrics["top1"].value, found.get(key, (0.0, 0.0))[1])
    beaten = {
        key: sum(other < cost and better > top1 for other, better in found.values())
        for key, (cost, top1) in found.items()
    }
    return sorted(found, key=lambda key: (beaten[key], key))


def fingerprint(patterns: Iterable[str], *others: str) -> str:
    """Eight digits that change with the files that the patterns name."""
    digest = hashlib.sha256("".join(others).encode())
    for file in sorted({file for pattern in patterns for file in PACKAGE.glob(pattern)}):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:8]


def begin() -> None:
    torch.set_num_threads(1)
    gc.set_threshold(200_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, required=True, metavar="DIR", help="folder for traces and results")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    traced = fingerprint(TRACING, version("torch"), version("timm"))
    traces: Path = asked.keep / f"traces-{traced}"
    study: Path = asked.keep / f"simulated-{fingerprint(PRICING, traced)}"
    traces.mkdir(parents=True, exist_ok=True)
    kept = read(study).records if (study / STUDY_FILE).exists() else ()
    made = {(record.name, record.conditions["img_size"]) for record in kept}
    jobs = [Job(name, img_size, traces) for name, img_size in promising_first() if (name, img_size) not in made]
    began = time.monotonic()
    with ProcessPoolExecutor(asked.processes, get_context("spawn"), begin) as pool:
        for number, (job, records, refusal) in enumerate(pool.map(done, jobs), 1):
            if records:
                append(study, records)
            left = (time.monotonic() - began) / number * (len(jobs) - number) / 60
            status = refusal or f"{records[0].status} {records[0].reason or ''}"
            print(f"{number}/{len(jobs)} {job.name}@{job.img_size} {status} ({left:.0f} min left)", flush=True)
    (PACKAGE / "simulation" / FILE_NAME).write_bytes(to_bytes(read(study).records))


if __name__ == "__main__":
    main()
