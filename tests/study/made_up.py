"""A study, jobs and records that nobody measured, and a clock that tests turn."""

from favor.measurement.job import MeasureJob
from favor.records.schema import CardFields, Record, reading
from favor.study.plan import Job
from favor.study.resolved import FirstWeights, Machine, PlannedModel, ResolvedStudy
from favor.study.schema import BatchSizes, Budget, Report, Train

MACHINE = Machine(device="cpu", label="cpu", device_name="Made-up 1", torch="2.99.0", threads=2)
ENVIRONMENT = {"device_name": "Made-up 1", "torch": "2.99.0", "threads": 2, "budget": 3.0, "host": "made-up-host"}
HOWS = {
    "vit_s16": "baseline",
    "vit_ti16": "baseline",
    "swin_ti": "sparse",
    "wavevit_s": "sparse",
    "cvt_13": "hybrid",
    "efficientformerv2_s0": "hybrid",
}
WHERES = {"baseline": "baseline", "sparse": "token_mixing", "hybrid": "token_mixing"}
FAMILIES = {"vit_s16": "vit", "vit_ti16": "vit", "swin_ti": "swin"}


class FakeClock:
    """Time passes only when someone lets it."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def a_study(
    names=tuple(HOWS),
    phases=("count", "inference"),
    budget: Budget | None = None,
    train: Train | None = None,
    report: Report | None = None,
    **changes,
) -> ResolvedStudy:
    asked = {
        "name": "made-up",
        "models": tuple(PlannedModel(name=name, how=HOWS.get(name), img_sizes=(224,)) for name in names),
        "plugins": (),
        "num_classes": 1000,
        "phases": phases,
        "precisions": ("fp32",),
        "batch_size": BatchSizes(inference="best", training=8),
        "energy": True,
        "machine": MACHINE,
        "train": train,
        "first_weights": FirstWeights(),
        "budget": budget or Budget(),
        "report": report or Report(page=False),
    }
    return ResolvedStudy(**asked | changes)


def a_record(job: Job, time: str = "2026-11-16T01:00:00Z", metrics=None, environment=None, **changes) -> Record:
    """What a job would find: a throughput or a step time of its own."""
    how = HOWS.get(job.name)
    found = {"throughput": 10.0, "latency_p50": 0.1, "inference_memory": 1e8}
    if job.phase == "training":
        found = {"train_step_time": 2.0, "train_memory": 5e8, "train_throughput": 4.0}
    assert isinstance(job, MeasureJob)
    return Record(
        name=job.name,
        model=CardFields(FAMILIES.get(job.name, job.name), job.name, WHERES.get(how), how, 2021, "own"),
        task=job.phase,
        source="measured",
        conditions={**job.conditions, "fused": False},
        metrics={name: reading(name, value, method="made up") for name, value in (metrics or found).items()},
        environment=ENVIRONMENT if environment is None else environment,
        time=time,
        **changes,
    )
