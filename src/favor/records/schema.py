"""A record: one measurement of one model, with all that is needed to interpret its numbers.

A record is one line of JSON; `docs/records.md` describes every field. `Record` is the only definition: msgspec reads,
validates and writes lines or plain data with it. 100,000 records are read in 1.0 s of processor time.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf
from numbers import Integral, Real
from sys import float_info
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from favor.errors import RequestError, one_line, shown, unknown_name
from favor.metrics import METRICS, metric
from favor.zoo.taxonomy import How, Where

if TYPE_CHECKING:
    from favor.zoo.registry import Card

SCHEMA = 1
EAGER = "eager"
"""The runtime of numbers that do not name one."""

Task = Literal["count", "inference", "training", "accuracy", "load"]
Source = Literal["measured", "published", "imported", "simulated"]
Status = Literal["ok", "failed", "out_of_memory", "timeout"]
Scalar = str | bool | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float

RECORD_COLUMNS = (
    *("name", "family", "title", "where", "how", "year", "origin"),
    *("task", "source", "status", "reason", "provenance", "time"),
)

# Measurements of the same thing differ by the machine, its software and how it was used.
MACHINE_COLUMNS = {f"environment.{key}": key for key in ("host", "device_name", "torch", "threads")}
TABLE_COLUMNS = (*RECORD_COLUMNS, "flags", "machine")
# How many images an accuracy of one's own was evaluated on.
IMAGES_COLUMN = "environment.evaluation_images"
# How many seconds each timing of a measurement could take.
BUDGET_COLUMN = "environment.budget"
# The folder of the training run that an accuracy is from.
RUN_COLUMN = "environment.run"
# The columns of models that were measured in turns: the stretch that they share, and what every round gave.
ROUND_COLUMNS = ("stretch", "throughput_rounds", "latency_p50_rounds")

# Conditions used in computations: a string here would break every analysis of the study.
SIZES = ("img_size", "batch_size", "num_classes")


# Without `gc`, large studies are not scanned for reference cycles; no field can hold one.
class Reading(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One metric's value in the glossary's unit, with its interval where one is known, and how it was measured."""

    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    method: str = ""


class CardFields(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The fields of a model's card that records carry; None is unknown, as for models outside the zoo."""

    family: str | None = None
    title: str | None = None
    where: str | None = None
    how: str | None = None
    year: Annotated[int, Meta(ge=1, le=9999)] | None = None
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


Positive = Annotated[float, Meta(gt=0, le=float_info.max)]
NotNegative = Annotated[float, Meta(ge=0, le=float_info.max)]
Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class RatePoint(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One probe of a load test: queries per second, dynamic batching, and latencies in seconds.

    `kept` says whether 99 % of the answers came within the limit, `decided` whether a test says so or the share alone.
    In other scenarios than `server` the rate is what was answered.
    """

    rate: Positive
    largest_batch: Whole
    longest_wait: NotNegative
    p50: NotNegative
    p90: NotNegative
    p99: NotNegative
    answers: Whole
    late: Whole
    kept: bool
    decided: bool


class BatchPoint(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One batch size of a load test: its median time in seconds, and images per second."""

    batch_size: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    throughput: Positive
    latency: Positive


class LoadCurves(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """What a load test found besides its largest rate: latency against rate, throughput and latency against batch."""

    rates: tuple[RatePoint, ...] = ()
    batches: tuple[BatchPoint, ...] = ()


def timestamp(moment: datetime | None = None) -> str:
    """A time, by default now, as records write it: UTC to the second.

    >>> timestamp(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2026-01-02T03:04:05Z'
    """
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Record(Struct, frozen=True, forbid_unknown_fields=True, gc=False, tag_field="schema", tag=SCHEMA):
    """One measurement, or one failure to make it; `time` is None if the source does not give it."""

    name: Annotated[str, Meta(min_length=1)]
    model: CardFields
    task: Task
    source: Source
    conditions: Mapping[str, Scalar] = {}
    metrics: Mapping[str, Reading] = {}
    status: Status = "ok"
    reason: str | None = None
    provenance: Mapping[str, Scalar] = {}
    environment: Mapping[str, Scalar] = {}
    time: str | None = None
    load: LoadCurves | None = None
    written_request: str | None = msgspec.field(default=None, name="request")

    def __post_init__(self) -> None:
        if self.written_request is not None:
            # Recomputed from the other fields, so that the value in the file need not be trusted.
            msgspec.structs.force_setattr(self, "written_request", None)
        if self.time is not None and not TIME.match(self.time):
            raise RequestError(f"time: {shown(self.time)} is not written like 2026-11-15T21:40:00Z")
        if (self.status == "ok") is not (self.reason is None):
            raise RequestError(
                f"a failure needs a reason, a success has none: status {self.status!r} with reason {shown(self.reason)}"
            )
        if "compile" in self.conditions:
            msgspec.structs.force_setattr(self, "conditions", _with_runtime(self.conditions))
        model, conditions = self.model, self.conditions
        if (model.where, model.how) not in CARD_CLASSES:
            raise RequestError(
                f"model: no class of the taxonomy has where={shown(model.where)} and how={shown(model.how)}"
            )
        if not TAKEN_COLUMNS.isdisjoint(conditions):
            taken = min(TAKEN_COLUMNS.intersection(conditions))
            raise RequestError(f"conditions: {taken!r} is already a column of the table; choose another name")
        for size in SIZES:
            if size in conditions and (type(conditions[size]) not in (int, float) or not conditions[size] > 0):  # type: ignore[operator]
                raise RequestError(f"conditions.{size}: {shown(conditions[size])} is not a number above zero")
        for name, reading in self.metrics.items():
            value, low, high = reading.value, reading.low, reading.high
            if reading.unit != (METRICS.get(name) or metric(name)).unit:
                raise RequestError(f"metrics.{name}: stored in {metric(name).unit!r}, not in {shown(reading.unit)}")
            if (value < 0 or (low is not None and low < 0)) and not METRICS[name].signed:
                raise RequestError(f"metrics.{name}: value {value!r}, low {low!r}: no metric is below zero")
            if reading.unit == "%" and value > 100:
                raise RequestError(f"metrics.{name}: {value!r} is above 100 %")
            if not (value if low is None else low) <= value <= (value if high is None else high) < inf:
                raise RequestError(f"metrics.{name}: value {value!r} is not within low {low!r} and high {high!r}")

    @property
    def request(self) -> str:
        """The content hash of the request."""
        return request_of(self.name, self.task, self.conditions)


def _with_runtime(conditions: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The conditions with the runtime that `compile` stood for in earlier records.

    >>> _with_runtime({"device": "cpu", "compile": True})
    {'device': 'cpu', 'runtime': 'compile'}
    """
    if "runtime" in conditions:
        raise RequestError("conditions: `compile` is an earlier word for the runtime; keep `runtime` only")
    runtime = "compile" if conditions["compile"] else EAGER
    return {"runtime" if name == "compile" else name: value for name, value in conditions.items()} | {
        "runtime": runtime
    }


class NewerSchemaError(RequestError):
    """A record of a newer favor, which this version cannot read."""


class NotJsonError(RequestError):
    """A line that is not JSON, or too deeply nested to parse."""


def reading(
    metric_name: str, value: float, low: float | None = None, high: float | None = None, *, method: str
) -> Reading:
    """A reading in the metric's own unit.

    >>> reading("throughput", 12.5, method="printed").unit
    'img/s'
    """
    return Reading(value, metric(metric_name).unit, low, high, method)


def request_of(name: str, task: str, conditions: Mapping[str, Scalar]) -> str:
    """The content hash of a request: a measurement whose request is in the store need not be repeated.

    >>> request_of("vit_s16", "count", {"img_size": 224})
    '2ff2a767f7898064'
    """
    try:
        canonical = _CANONICAL.encode({"name": name, "task": task, "conditions": dict(conditions)})
    except (TypeError, ValueError) as error:
        raise RequestError(f"conditions of {name} must be strings, finite numbers, true or false: {error}") from error
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def to_data(record: Record) -> dict[str, Any]:
    """The record as plain JSON data."""
    data: dict[str, Any] = msgspec.to_builtins(record, enc_hook=_plain_number)
    if record.load is None:  # as in records of other tasks
        del data["load"]
    return data | {"request": record.request}


def _plain_number(value: Any) -> float:
    if isinstance(value, Real):  # numpy's
        return int(value) if isinstance(value, Integral) else float(value)
    raise TypeError(f"{shown(value)} is not a string, a finite number, true or false")


def to_line(record: Record) -> bytes:
    """The record as one line of JSON with its newline; a record that could not be read back is refused here."""
    try:
        line = without_control_characters(_COMPACT.encode(to_data(record)).encode())
    except UnicodeEncodeError as error:
        raise RequestError(f"record of {record.name!r}: a string is not valid Unicode: {error.reason}") from error
    except (TypeError, ValueError) as error:
        raise RequestError(f"record of {record.name}: {one_line(error)}") from error
    from_line(line)
    return line + b"\n"


def from_data(data: Any) -> Record:
    """The record from plain JSON data, such as a worker sends; a RequestError says what is wrong with it."""
    if type(data) is not dict:
        raise RequestError(f"a record is a JSON object, not {shown(data)}")
    schema = data.get("schema", SCHEMA)
    if type(schema) is int and schema > SCHEMA:
        raise NewerSchemaError(
            f"schema {shown(schema)} is newer than {SCHEMA}, the newest that this favor reads; upgrade favor"
        )
    if type(schema) is not int or schema != SCHEMA:
        raise RequestError(f"schema: {shown(schema)} is not a version of the record schema (newest: {SCHEMA})")
    if isinstance(data.get("metrics"), dict):
        for name in data["metrics"]:
            metric(name)
    data = _without_nulls(data)
    try:
        return msgspec.convert(data, Record)
    except msgspec.ValidationError as error:
        raise _explained(error, data) from error


def from_line(line: bytes) -> Record:
    """The record from one line; a RequestError says what is wrong with it."""
    line = without_control_characters(line)
    try:
        try:
            return _DECODER.decode(line)
        except msgspec.ValidationError:
            return from_data(msgspec.json.decode(line))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJsonError(f"not JSON: {one_line(error)}") from error


def from_lines(lines: bytes) -> list[Record] | None:
    """The records of many lines at once; None if any line needs `from_line`."""
    try:
        records = _DECODER.decode_lines(without_control_characters(lines))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return records if len(records) == lines.count(b"\n") + (not lines.endswith(b"\n")) else None


def without_control_characters(line: bytes) -> bytes:
    r"""JSON with a space for each tab or line break in a string, and U+FFFD for any other control character.

    Terminals obey control characters, and renderers of figures crash on them.

    >>> without_control_characters(rb'"two\nlines, \u001b[31mred, C:\\new"').decode()
    '"two lines, �[31mred, C:\\\\new"'
    """
    # Few lines contain any of these bytes, so few lines are searched.
    if b"\\" in line or b"\x7f" in line or b"\xc2" in line:
        return _ESCAPE_OR_CONTROL.sub(_harmless, line)
    return line


def _harmless(match: re.Match[bytes]) -> bytes:
    if match["keep"]:
        return match[0]
    return b" " if match[0] in (rb"\n", rb"\r", rb"\t") else "\N{REPLACEMENT CHARACTER}".encode()


def _without_nulls(data: dict[str, Any]) -> dict[str, Any]:
    """Drop null values at every level, as if they had been left out."""
    return {
        key: {name: _filled(value) for name, value in inside.items() if value is not None}
        if isinstance(inside, dict)
        else inside
        for key, inside in data.items()
        if inside is not None
    }


def _filled(value: Any) -> Any:
    return {key: part for key, part in value.items() if part is not None} if isinstance(value, dict) else value


def _explained(error: msgspec.ValidationError, data: dict[str, Any]) -> RequestError:
    """What is wrong with data that is not a record: the field, and at most 200 characters of its value."""
    if isinstance(error.__cause__, RequestError):
        return RequestError(one_line(error.__cause__))
    what, path = _parts(error)
    section = path[0] if path else "record"
    if section == "load":
        place = str(error).rpartition(" - at `$.")[2].removesuffix("`")
        return RequestError(f"{place}: {what[0].lower()}{_short(what[1:])}")
    if "[...]" in path:  # msgspec does not say which entry
        for key, value in data[section].items():
            try:
                msgspec.convert(value, Reading if section == "metrics" else Scalar)
            except msgspec.ValidationError as entry_error:
                what, inside = _parts(entry_error)
                path = [section, key, *inside]
                break
    given: Any = data
    for key in path:
        given = given[key]
    where = ".".join(map(_short, path)) or "record"
    if unknown := re.search("unknown field `(.*)`", what, re.DOTALL):
        keys = {"record": _RECORD_KEYS, "model": CardFields.__struct_fields__}.get(section, Reading.__struct_fields__)
        return unknown_name(f"key of {where}", unknown[1], keys)
    if missing := re.search("missing required field `(.*)`", what):
        return RequestError(f"{where}: {missing[1]} is missing")
    if where in _CHOICES and isinstance(given, str):
        return unknown_name(where, given, _CHOICES[where], f"one of {', '.join(_CHOICES[where])}")
    return RequestError(f"{where}: {_short(shown(given))}: {what[0].lower()}{what[1:]}")


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."


def _parts(error: msgspec.ValidationError) -> tuple[str, list[str]]:
    what, _, path = str(error).rpartition(" - at `$")
    return (what, re.findall(r"\[\.\.\.\]|[^.`\[]+", path)) if what else (path, [])


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
_COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_DECODER = msgspec.json.Decoder(Record)
_ESCAPE_OR_CONTROL = re.compile(
    rb"\\u00(?:[01][0-9a-fA-F]|7[fF]|[89][0-9a-fA-F])|\\[bfnrt]|(?P<keep>\\.)|\x7f|\xc2[\x80-\x9f]", re.DOTALL
)
_SHORT = 60

TASKS, SOURCES, STATUSES = get_args(Task), get_args(Source), get_args(Status)
_CHOICES = {"task": TASKS, "source": SOURCES, "status": STATUSES}
_RECORD_KEYS = ("schema", *Record.__struct_encode_fields__)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\Z", re.ASCII)
CARD_CLASSES = frozenset(
    {(how.where.key, how.key) for how in How} | {(where.key, None) for where in Where} | {(None, None)}
)
# A condition with the name of one of these columns would overwrite it in the table.
TAKEN_COLUMNS = frozenset(
    {
        *TABLE_COLUMNS,
        *ROUND_COLUMNS,
        *MACHINE_COLUMNS,
        IMAGES_COLUMN,
        BUDGET_COLUMN,
        RUN_COLUMN,
        *(name + end for name in METRICS for end in ("", "_low", "_high", "_source")),
    }
)
