"""Several models measured in one session, in turns: A, B, C, A, B, C ..., until their order is known or time is up."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType

import msgspec

from favor.machine.clock import Clock
from favor.machine.environment import is_busy
from favor.machine.messages import Findings
from favor.machine.process import supervise_in_turns, worker_command
from favor.machine.stopping import StoppingRule, quantile
from favor.measurement.in_turns import LEAST_QUIET_ROUNDS
from favor.measurement.job import MeasureJob
from favor.measurement.measure import default_time_limit, environment_of, record_of, with_limits
from favor.records.schema import Record, timestamp


def measure_head_to_head(
    jobs: Sequence[MeasureJob],
    seconds: float,
    clock: Clock,
    processors: int,
    on_step: Callable[[str], None] = lambda step: None,
    exporting: Mapping[MeasureJob, Findings] = MappingProxyType({}),
) -> tuple[Record, ...]:
    """Measure models in turns within a time limit in seconds, each in its own process; a failure gives no record.

    Each model has an earlier record of its own, so a failure here takes nothing away.
    """
    started = datetime.now(UTC)
    stretch = f"{timestamp(started)} {uuid.uuid4().hex[:8]}"
    limited = [with_limits(replace(job, in_turns=True)) for job in jobs]
    with ExitStack() as caches:
        of_jobs = supervise_in_turns(
            worker_command("favor.measurement.worker"),
            [job.to_json() for job in limited],
            time_limit=seconds + sum(default_time_limit(job) for job in jobs),
            rounds_have_ended=RoundsEnd(seconds, clock, processors),
            on_step=on_step,
            environments=[caches.enter_context(environment_of(job)) for job in jobs],
        )
    with_rounds = [
        (job, findings)
        for job, findings in zip(jobs, of_jobs, strict=True)
        if findings.status == "ok" and findings.rounds
    ]
    names = " ".join(job.name for job, _ in with_rounds)
    return tuple(
        _in_stretch(record_of(job, findings, started, exporting.get(job)), stretch, names)
        for job, findings in with_rounds
        if len(with_rounds) > 1
    )


def _in_stretch(record: Record, stretch: str, names: str) -> Record:
    environment = {**record.environment, "stretch": stretch, "stretch_models": names}
    return msgspec.structs.replace(record, environment=environment)


class RoundsEnd:
    """Ends the rounds when the order of the models is known, or when the time is up."""

    def __init__(self, seconds: float, clock: Clock, processors: int) -> None:
        self._seconds, self._clock, self._processors = seconds, clock, processors
        self._began: float | None = None

    def __call__(self, everyone: Sequence[Findings]) -> bool:
        if self._began is None:
            self._began = self._clock.now()
        taking_part = [findings for findings in everyone if findings.status is None]
        if len(taking_part) < 2 or self._clock.now() - self._began >= self._seconds:
            return True
        return order_is_known([self._quiet(findings) for findings in taking_part])

    def _quiet(self, findings: Findings) -> dict[int, float]:
        return {
            number: turn.throughput
            for number, turn in enumerate(findings.rounds)
            if not is_busy(turn.others, self._processors)
        }


def order_is_known(throughputs: Sequence[dict[int, float]]) -> bool:
    """Whether the fastest model is known: round by round it is faster than each other one, or as fast within 2 %.

    >>> rounds = range(8)
    >>> order_is_known([dict.fromkeys(rounds, 12.0), dict.fromkeys(rounds, 10.0)])
    True
    >>> order_is_known([dict.fromkeys(rounds, 12.0), {number: 10.0 + number for number in rounds}])
    False
    """
    common = set.intersection(*(set(values) for values in throughputs))
    if len(common) < LEAST_QUIET_ROUNDS:
        return False
    medians = [quantile([values[number] for number in common], 0.5).value for values in throughputs]
    fastest = throughputs[medians.index(max(medians))]
    for values in throughputs:
        if values is fastest:
            continue
        ratio = quantile([values[number] / fastest[number] for number in sorted(common)], 0.5)
        if ratio.high is None or not (ratio.high < 1 or ratio.is_within(StoppingRule.relative_width)):
            return False
    return True
