"""What a record is: one measurement of one model, with everything that its numbers need to be understood.

A record is one line of JSON; `docs/records.md` describes every field. Lines are checked where they are written and
where they are read, by hand rather than by a model class: 100,000 of them are to load in two seconds.
"""

import hashlib
import json
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic_core import from_json

from favor.errors import RequestError, unknown_name
from favor.metrics import METRICS, metric
from favor.zoo.taxonomy import How, Where

if TYPE_CHECKING:
    from favor.zoo.registry import Card

SCHEMA = 1

Task = Literal["count", "inference", "training", "accuracy"]
Source = Literal["measured", "published", "imported", "simulated"]
Status = Literal["ok", "failed", "out_of_memory", "timeout"]
Scalar = str | bool | int | float

RECORD_COLUMNS = (
    *("name", "family", "title", "where", "how", "year", "origin"),
    *("task", "source", "status", "reason", "provenance", "time"),
)

# Two measurements of the same thing are told apart by the machine, its software and how it was used.
MACHINE_COLUMNS = {f"environment.{key}": key for key in ("host", "device_name", "torch", "threads")}
TABLE_COLUMNS = (*RECORD_COLUMNS, "machine")


@dataclass(frozen=True, slots=True)
class Reading:
    """One metric's value in the glossary's unit, with its interval where one is known, and how it was found."""

    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    method: str = ""


@dataclass(frozen=True, slots=True)
class CardFields:
    """The fields of a model's card that records carry; None is unknown, as for a foreign model."""

    family: str | None = None
    title: str | None = None
    where: str | None = None
    how: str | None = None
    year: int | None = None
    origin: str | None = None

    @classmethod
    def of(cls, card: "Card") -> "CardFields":
        """The fields of a card."""
        return cls(
            family=card.family,
            title=card.title,
            where=card.where.key if card.where else None,
            how=card.how.key if card.how else None,
            year=card.year,
            origin=card.origin,
        )


def timestamp(moment: datetime | None = None) -> str:
    """A moment, by default now, as records write it: UTC to the second.

    >>> timestamp(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2026-01-02T03:04:05Z'
    """
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Record:
    """One measurement, or one failure to make it; `time` is None where the source does not tell it."""

    name: str
    model: CardFields
    task: Task
    source: Source
    conditions: Mapping[str, Scalar]
    metrics: Mapping[str, Reading] = field(default_factory=dict)
    status: Status = "ok"
    reason: str | None = None
    provenance: Mapping[str, str | int] = field(default_factory=dict)
    environment: Mapping[str, Scalar] = field(default_factory=dict)
    time: str | None = None

    @property
    def request(self) -> str:
        """The content hash of what was asked."""
        return request_of(self.name, self.task, self.conditions)


class NewerSchemaError(RequestError):
    """A record of a later favor, which this one cannot understand."""


def reading(
    metric_name: str, value: float, low: float | None = None, high: float | None = None, *, method: str
) -> Reading:
    """A reading in the metric's own unit.

    >>> reading("throughput", 12.5, method="printed").unit
    'img/s'
    """
    return Reading(value, metric(metric_name).unit, low, high, method)


def request_of(name: str, task: str, conditions: Mapping[str, Scalar]) -> str:
    """The content hash of what is asked: a measurement whose request is in the store need not be made again.

    >>> request_of("vit_s16", "count", {"img_size": 224})
    '2ff2a767f7898064'
    """
    try:
        canonical = _CANONICAL.encode({"name": name, "task": task, "conditions": dict(conditions)})
    except (TypeError, ValueError) as error:
        raise RequestError(f"conditions of {name}: not texts, finite numbers, true or false: {error}") from error
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def to_data(record: Record) -> dict[str, Any]:
    """The record as plain JSON data, keys in the order of the documentation."""
    return {
        "schema": SCHEMA,
        "request": record.request,
        "time": record.time,
        "name": record.name,
        "model": {key: getattr(record.model, key) for key in CardFields.__slots__},
        "task": record.task,
        "source": record.source,
        "provenance": dict(record.provenance),
        "status": record.status,
        "reason": record.reason,
        "conditions": dict(record.conditions),
        "environment": dict(record.environment),
        "metrics": {name: _reading_data(value) for name, value in record.metrics.items()},
    }


def _reading_data(value: Reading) -> dict[str, Any]:
    # numpy's numbers become plain ones, which JSON needs.
    return {
        "value": float(value.value),
        "unit": value.unit,
        "low": None if value.low is None else float(value.low),
        "high": None if value.high is None else float(value.high),
        "method": value.method,
    }


def from_data(data: Any) -> Record:
    """The record in plain JSON data, such as a child process hands over; a RequestError says what is wrong with it."""
    check(data)
    return from_checked(data)


def from_checked(data: dict[str, Any]) -> Record:
    """The record in data that `check` has passed."""
    return Record(
        name=data["name"],
        model=CardFields(**data["model"]),
        task=data["task"],
        source=data["source"],
        conditions=_known(data.get("conditions")),
        metrics={name: Reading(**_known(value)) for name, value in _known(data.get("metrics")).items()},
        status=data["status"],
        reason=data.get("reason"),
        provenance=_known(data.get("provenance")),
        environment=_known(data.get("environment")),
        time=data.get("time"),
    )


def _known(values: dict[str, Any] | None) -> dict[str, Any]:
    """What is null is unknown, as if it had been left out."""
    return {key: value for key, value in (values or {}).items() if value is not None}


def to_line(record: Record) -> bytes:
    """The record as one line of JSON with its newline; a record that could not be read back is refused here."""
    data = to_data(record)
    check(data)
    try:
        return _COMPACT.encode(data).encode() + b"\n"
    except UnicodeEncodeError as error:
        raise RequestError(f"record of {record.name!r}: a text that is not Unicode: {error.reason}") from error


def json_of_line(line: bytes) -> Any:
    """The JSON on a line, not yet checked to be a record.

    Texts are cached while they are parsed, since records repeat theirs; not a number is not JSON.
    """
    return from_json(line, allow_inf_nan=False, cache_strings="all")


def check(data: Any) -> None:
    """Refuse data that is not a record of this schema, with one line that names the field and the cause."""
    if type(data) is not dict:
        raise RequestError(f"a record is a JSON object, not {data!r}")
    if type(data.get("schema")) is not int or data["schema"] != SCHEMA:
        raise _wrong_schema(data)
    _check_keys("record", data, RECORD_KEYS, REQUIRED_KEYS)
    for key in ("name", "request"):
        if type(data[key]) is not str or not data[key]:
            raise RequestError(f"{key}: {data[key]!r} is not a text")
    for key, choices in (("task", TASKS), ("source", SOURCES), ("status", STATUSES)):
        if data[key] not in choices:
            raise unknown_name(key, str(data[key]), choices, f"one of {', '.join(choices)}")
    time, reason = data.get("time"), data.get("reason")
    if time is not None and not (type(time) is str and TIME.match(time)):
        raise RequestError(f"time: {time!r} is not written like 2026-11-15T21:40:00Z")
    if type(reason) not in TEXT_OR_NONE or (data["status"] == "ok") is not (reason is None):
        raise RequestError(f"status {data['status']!r} with reason {reason!r}: a failure has a reason, a success none")
    _check_card(data["model"])
    for key in ("conditions", "environment", "provenance"):
        _check_flat(key, data.get(key))
    _check_conditions(data.get("conditions") or {})
    _check_metrics(data.get("metrics"))


def _check_keys(what: str, data: Any, known: Collection[str], required: Collection[str]) -> None:
    if type(data) is not dict:
        raise RequestError(f"{what}: {data!r} is not a JSON object")
    for key in data:
        if key not in known:
            raise unknown_name(f"key of {what}", key, known)
    for key in required:
        if data.get(key) is None:
            raise RequestError(f"{what}: no {key}")


def _check_card(model: Any) -> None:
    _check_keys("model", model, CardFields.__slots__, ())
    for key in ("family", "title", "origin"):
        if type(model.get(key)) not in TEXT_OR_NONE:
            raise RequestError(f"model.{key}: {model[key]!r} is not a text")
    year = model.get("year")
    if type(year) not in INT_OR_NONE or not (year is None or FIRST_YEAR <= year <= LAST_YEAR):
        raise RequestError(f"model.year: {year!r} is not a year from {FIRST_YEAR} to {LAST_YEAR}")
    where, how = model.get("where"), model.get("how")
    if type(where) not in TEXT_OR_NONE or type(how) not in TEXT_OR_NONE or (where, how) not in CARD_CLASSES:
        raise RequestError(f"model: no class of the taxonomy has where={where!r} and how={how!r}")


def _check_flat(key: str, values: Any) -> None:
    if values is None:
        return
    if type(values) is not dict:
        raise RequestError(f"{key}: {values!r} is not a JSON object")
    for name, value in values.items():
        if type(value) not in SCALAR_OR_NONE or (type(value) in NUMBERS and not -LARGEST <= value <= LARGEST):
            raise RequestError(f"{key}.{name}: {value!r} is not a text, a finite number, true or false")


def _check_conditions(conditions: dict[str, Any]) -> None:
    if not TAKEN_COLUMNS.isdisjoint(conditions):
        taken = min(TAKEN_COLUMNS.intersection(conditions))
        raise RequestError(f"conditions: {taken!r} is the name of a column of the table; choose another")


def _check_metrics(metrics: Any) -> None:
    if metrics is None:
        return
    if type(metrics) is not dict:
        raise RequestError(f"metrics: {metrics!r} is not a JSON object")
    for name, value in metrics.items():
        unit = metric(name).unit
        if value is not None:
            _check_reading(name, unit, value)


def _check_reading(name: str, unit: str, reading: Any) -> None:
    _check_keys(f"metrics.{name}", reading, Reading.__slots__, ("value", "unit"))
    if reading["unit"] != unit:
        raise RequestError(f"metrics.{name}: stored in {unit!r}, not in {reading['unit']!r}")
    value, low, high = reading["value"], reading.get("low"), reading.get("high")
    if type(value) not in NUMBERS or type(low) not in NUMBER_OR_NONE or type(high) not in NUMBER_OR_NONE:
        raise RequestError(f"metrics.{name}: value {value!r}, low {low!r}, high {high!r} are not all numbers")
    if value < 0 or (low is not None and low < 0):
        raise RequestError(f"metrics.{name}: value {value!r}, low {low!r}: no metric is below zero")
    if not (value if low is None else low) <= value <= (value if high is None else high) <= LARGEST:
        raise RequestError(f"metrics.{name}: value {value!r} is not within low {low!r} and high {high!r}")
    if type(reading.get("method")) not in TEXT_OR_NONE:
        raise RequestError(f"metrics.{name}: method {reading['method']!r} is not a text")


def _wrong_schema(data: dict[str, Any]) -> RequestError:
    schema = data.get("schema")
    if type(schema) is int and schema > SCHEMA:
        return NewerSchemaError(
            f"schema {schema} is newer than {SCHEMA}, the newest that this favor reads; upgrade favor"
        )
    return RequestError(f"schema: {schema!r} is not a version of the record schema (newest: {SCHEMA})")


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
_COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)

TASKS, SOURCES, STATUSES = get_args(Task), get_args(Source), get_args(Status)
RECORD_KEYS = (
    *("schema", "request", "time", "name", "model", "task", "source", "provenance"),
    *("status", "reason", "conditions", "environment", "metrics"),
)
REQUIRED_KEYS = ("schema", "request", "name", "model", "task", "source", "status")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\Z", re.ASCII)
LARGEST = sys.float_info.max
FIRST_YEAR, LAST_YEAR = 1, 9999
# Exact types: to Python a bool is an int, but a number that is a bool is a mistake.
NUMBERS = frozenset({int, float})
NUMBER_OR_NONE = frozenset({int, float, type(None)})
INT_OR_NONE = frozenset({int, type(None)})
TEXT_OR_NONE = frozenset({str, type(None)})
SCALAR_OR_NONE = frozenset({str, bool, int, float, type(None)})
CARD_CLASSES = frozenset(
    {(how.where.key, how.key) for how in How} | {(where.key, None) for where in Where} | {(None, None)}
)
# A condition with the name of one of these columns would overwrite it in the table.
TAKEN_COLUMNS = frozenset(
    {*TABLE_COLUMNS, *MACHINE_COLUMNS, *(name + end for name in METRICS for end in ("", "_low", "_high", "_source"))}
)
