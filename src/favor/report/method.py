"""How the numbers were obtained: machines, protocol, failures and sources, for the page's last section."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from favor.metrics import METRICS, Metric
from favor.records import Gathered, Record
from favor.records.counted import FILE_NAME as COUNTS_FILE
from favor.records.frame import machine_text, provenance_text
from favor.records.schema import MACHINE_COLUMNS, Scalar
from favor.units import format_quantity

_PAPERS = {
    "which_transformer_to_favor": "Which Transformer to Favor (Nauen et al., WACV 2025)",
    "the_efficiency_misnomer": "The Efficiency Misnomer (Dehghani et al., ICLR 2022)",
    "hybrid_x_formers_for_vision": "Resource-efficient Hybrid X-formers for Vision (Jeevan and Sethi, WACV 2022)",
}
_FLAGS = "flags"
_COUNTS = "counts shipped with favor"
_MEASURED_HERE = "your records"
# How the page names a key of the environment, and the unit of its numbers, which is not part of the record.
_FACTS = {
    "budget": ("budget per measurement", "s"),
    "device_memory": ("device memory", "B"),
    "memory_limit": ("memory limit", "B"),
    "others_before": ("used by other programs before", "processors"),
    "others_during": ("used by other programs during", "processors"),
    "load_average": ("load average", "processors"),
}
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?\b")  # and not the 32 of float32


@dataclass(frozen=True)
class Environment:
    """One machine with its software, and the number of its records and models."""

    title: str
    facts: tuple[tuple[str, str], ...]
    records: int
    models: int


@dataclass(frozen=True)
class Failure:
    """A failed job, and why it failed."""

    name: str
    task: str
    source: str
    status: str
    conditions: str
    reason: str
    provenance: str


@dataclass(frozen=True)
class Origin:
    """Where numbers come from, and how many there are."""

    source: str
    place: str
    models: int
    numbers: int


@dataclass(frozen=True)
class Protocol:
    """A metric of the page and the methods behind its numbers."""

    metric: Metric
    methods: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Method:
    """The content of the section; `unreadable` are lines that had to be skipped."""

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
    """The machines of the user's measurements, those with most records first."""
    made: dict[str, list[Record]] = {}
    for record in records:
        if record.source == "measured" and record.environment:
            machine = machine_text(*(record.environment.get(key) for key in MACHINE_COLUMNS.values()))
            made.setdefault(machine or "unnamed machine", []).append(record)
    environments = [
        Environment(
            machine,
            _in_common([record.environment for record in made_there]),
            len(made_there),
            len({record.name for record in made_there}),
        )
        for machine, made_there in made.items()
    ]
    return tuple(sorted(environments, key=lambda one: -one.records))


def _in_common(environments: Sequence[Mapping[str, Scalar]]) -> tuple[tuple[str, str], ...]:
    """What all environments share, the range of numbers that vary, and the flags; texts that vary are left out.

    >>> _in_common([{"threads": 2, "budget": 2, "curve": "1 2"}, {"threads": 2, "budget": 3.5, "curve": "1 3"}])
    (('budget per measurement', '2.00 s to 3.50 s'), ('threads', '2'))
    """
    facts = []
    for key in sorted({key for environment in environments for key in environment} - {_FLAGS}):
        values = {environment[key] for environment in environments if key in environment}
        title, unit = _FACTS.get(key, (key.replace("_", " "), None))
        if len(values) == 1:
            facts.append((title, _text(values.pop(), unit)))
        elif all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            least, greatest = min(values, key=float), max(values, key=float)
            # The unit once, where both ends have the same.
            facts.append((title, f"{_text(least, unit).removesuffix(' processors')} to {_text(greatest, unit)}"))
    return (*facts, *_flags(environments))


def _flags(environments: Sequence[Mapping[str, Scalar]]) -> list[tuple[str, str]]:
    """How many records have each flag; a flag is a reason to distrust a number.

    >>> _flags([{"flags": "busy latency:wide"}, {"flags": "busy"}, {}])
    [('flags', 'busy on 2 records, latency:wide on 1')]
    """
    counts = Counter(flag for environment in environments for flag in str(environment.get(_FLAGS, "")).split())
    texts = [f"{flag} on {count}" for flag, count in counts.most_common()]
    if texts:
        texts[0] += " record" if counts.total() == 1 else " records"
    return [("flags", ", ".join(texts))] if texts else []


def _text(value: Scalar, unit: str | None = None) -> str:
    """A value as text, with its unit if it has one.

    >>> _text(True), _text(0.25), _text(25274793984, "B"), _text(1.019, "processors")
    ('yes', '0.25', '23.5 GiB', '1.02 processors')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit is not None and isinstance(value, int | float):
        return format_quantity(value, unit)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _protocols(records: Iterable[Record]) -> tuple[Protocol, ...]:
    methods: dict[str, Counter[str]] = {}
    for record in records:
        for name, reading in record.metrics.items():
            methods.setdefault(name, Counter())[reading.method or "not stated"] += 1
    return tuple(Protocol(metric, _ways(methods[name])) for name, metric in METRICS.items() if name in methods)


def _ways(methods: Counter[str]) -> tuple[tuple[str, int], ...]:
    """The methods, most used first; those that differ only in numbers are joined, with the ranges of the numbers.

    >>> _ways(Counter({"21 calls at batch size 1": 2, "9 calls at batch size 1": 1, "printed": 5}))
    (('printed', 5), ('9 to 21 calls at batch size 1', 3))
    """
    alike: dict[str, list[str]] = {}
    for method in methods:
        alike.setdefault(_NUMBER.sub("0", method), []).append(method)
    ways: Counter[str] = Counter()
    for group in alike.values():
        ranges = (_range(column) for column in zip(*(_NUMBER.findall(method) for method in group), strict=True))
        way = _NUMBER.sub(lambda _, ranges=ranges: next(ranges), group[0])  # type: ignore[misc]
        ways[way] = sum(methods[method] for method in group)
    return tuple(ways.most_common())


def _range(numbers: Sequence[str]) -> str:
    least, greatest = min(numbers, key=float), max(numbers, key=float)
    return least if least == greatest else f"{least} to {greatest}"


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
