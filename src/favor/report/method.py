"""How the numbers came about: machines, protocol, failures and sources, as the page's last section tells them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from favor.metrics import METRICS, Metric
from favor.records import Record
from favor.records.counted import FILE_NAME as COUNTS_FILE
from favor.records.frame import machine_text, provenance_text
from favor.records.schema import MACHINE_COLUMNS, Scalar
from favor.report.sources import Gathered

_PAPERS = {
    "which_transformer_to_favor": "Which Transformer to Favor (Nauen et al., WACV 2025)",
    "the_efficiency_misnomer": "The Efficiency Misnomer (Dehghani et al., ICLR 2022)",
    "hybrid_x_formers_for_vision": "Resource-efficient Hybrid X-formers for Vision (Jeevan and Sethi, WACV 2022)",
}
_COUNTS = "counts of our own models, which come with favor"
_MEASURED_HERE = "the reader's records"


@dataclass(frozen=True)
class Environment:
    """One machine with its software, and how many records were made there."""

    title: str
    facts: tuple[tuple[str, str], ...]
    records: int
    models: int


@dataclass(frozen=True)
class Failure:
    """Work that did not succeed, and why."""

    name: str
    task: str
    source: str
    status: str
    conditions: str
    reason: str
    provenance: str


@dataclass(frozen=True)
class Origin:
    """Where numbers come from: who stands for them, where they are written, and how many there are."""

    source: str
    place: str
    models: int
    numbers: int


@dataclass(frozen=True)
class Protocol:
    """A metric of the page with the ways in which its numbers were found."""

    metric: Metric
    methods: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Method:
    """All that the section shows; `unreadable` are lines of the reader's files that had to be skipped."""

    environments: tuple[Environment, ...]
    protocols: tuple[Protocol, ...]
    failures: tuple[Failure, ...]
    origins: tuple[Origin, ...]
    unreadable: tuple[str, ...]


def method_of(gathered: Gathered) -> Method:
    """The method behind everything that was gathered."""
    records = (*gathered.own, *gathered.shipped)
    return Method(
        environments=_environments(gathered.own),
        protocols=_protocols(records),
        failures=tuple(_failure(record) for record in records if record.status != "ok"),
        origins=_origins(records),
        unreadable=tuple(str(problem) for problem in gathered.problems),
    )


def _environments(records: Iterable[Record]) -> tuple[Environment, ...]:
    """The machines of the reader's measurements, the busiest first."""
    made: dict[str, list[Record]] = {}
    for record in records:
        if record.source == "measured" and record.environment:
            machine = machine_text(*(record.environment.get(key) for key in MACHINE_COLUMNS.values()))
            made.setdefault(machine or "a machine without a name", []).append(record)
    found = [
        Environment(
            machine,
            _in_common([record.environment for record in made_there]),
            len(made_there),
            len({record.name for record in made_there}),
        )
        for machine, made_there in made.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.records))


def _in_common(environments: Sequence[Mapping[str, Scalar]]) -> tuple[tuple[str, str], ...]:
    """What all environments share, and the range of numbers that vary; other texts belong to single records.

    >>> _in_common([{"threads": 2, "load": 0.1, "curve": "1 2"}, {"threads": 2, "load": 0.3, "curve": "1 3"}])
    (('load', '0.1 to 0.3'), ('threads', '2'))
    """
    facts = []
    for key in sorted({key for environment in environments for key in environment}):
        values = {environment[key] for environment in environments if key in environment}
        if len(values) == 1:
            facts.append((key, _text(values.pop())))
        elif all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            least, greatest = min(values, key=float), max(values, key=float)
            facts.append((key, f"{_text(least)} to {_text(greatest)}"))
    return tuple(facts)


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _protocols(records: Iterable[Record]) -> tuple[Protocol, ...]:
    methods: dict[str, Counter[str]] = {}
    for record in records:
        for name, reading in record.metrics.items():
            methods.setdefault(name, Counter())[reading.method or "not told"] += 1
    return tuple(
        Protocol(metric, tuple(methods[name].most_common())) for name, metric in METRICS.items() if name in methods
    )


def _failure(record: Record) -> Failure:
    return Failure(
        name=record.name,
        task=record.task,
        source=record.source,
        status=record.status.replace("_", " "),
        conditions=", ".join(f"{key} {_text(value)}" for key, value in record.conditions.items()),
        reason=record.reason or "",
        provenance=provenance_text(record.provenance) or _MEASURED_HERE,
    )


def _origins(records: Iterable[Record]) -> tuple[Origin, ...]:
    names: dict[tuple[str, str], set[str]] = {}
    numbers: Counter[tuple[str, str]] = Counter()
    for record in records:
        key = (record.source, _place(record))
        names.setdefault(key, set()).add(record.name)
        numbers[key] += len(record.metrics)
    return tuple(Origin(*key, len(models), numbers[key]) for key, models in names.items())


def _place(record: Record) -> str:
    paper = record.provenance.get("paper")
    if paper is not None:
        return _PAPERS.get(str(paper), str(paper))
    file = record.provenance.get("file")
    if file == COUNTS_FILE:
        return _COUNTS
    return _MEASURED_HERE if file is None else str(file)
