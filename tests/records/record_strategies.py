"""Any record at all: what the tests of the store and of the table draw from."""

import string

from hypothesis import strategies as st

from favor.metrics import METRICS
from favor.records.schema import (
    SIZES,
    SOURCES,
    STATUSES,
    TAKEN_COLUMNS,
    TASKS,
    BatchPoint,
    CardFields,
    LoadCurves,
    RatePoint,
    Reading,
    Record,
)
from favor.zoo.taxonomy import How

POSITIVE = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=12)
WHOLE = st.integers(-(2**63), 2**63 - 1)
SCALAR = st.one_of(TEXT, st.booleans(), WHOLE, FINITE)
KEY = st.one_of(
    st.sampled_from(["device", "precision", "dataset", "ema"]),
    st.text(string.ascii_lowercase, min_size=1, max_size=6),
).filter(lambda key: key not in TAKEN_COLUMNS)
FLAT = st.dictionaries(KEY, SCALAR, max_size=5)
SIZE = st.one_of(st.integers(1, 2**63 - 1), st.floats(min_value=1, allow_infinity=False))
CONDITIONS = st.builds(dict.__or__, FLAT, st.dictionaries(st.sampled_from(SIZES), SIZE, max_size=2))


@st.composite
def readings(draw: st.DrawFn, metric_name: str) -> Reading:
    values = st.floats(0, 100) if METRICS[metric_name].unit == "%" else POSITIVE
    low, value, high = sorted(draw(st.tuples(values, values, values)))
    return Reading(
        value=value,
        unit=METRICS[metric_name].unit,
        low=draw(st.sampled_from([low, None])),
        high=draw(st.sampled_from([high, None])),
        method=draw(TEXT),
    )


@st.composite
def cards(draw: st.DrawFn) -> CardFields:
    how = draw(st.sampled_from([None, *How]))
    text = st.one_of(st.none(), TEXT)
    return CardFields(
        family=draw(text),
        title=draw(text),
        where=how and how.where.key,
        how=how and how.key,
        year=draw(st.one_of(st.none(), st.integers(1950, 2100))),
        origin=draw(st.sampled_from([None, "own", "timm"])),
    )


@st.composite
def load_curves(draw: st.DrawFn) -> LoadCurves:
    above_zero = st.floats(min_value=1e-9, max_value=1e9)
    counts = st.integers(0, 10**6)
    rates = [
        RatePoint(
            rate=draw(above_zero),
            largest_batch=draw(counts),
            longest_wait=draw(POSITIVE),
            p50=draw(POSITIVE),
            p90=draw(POSITIVE),
            p99=draw(POSITIVE),
            answers=draw(counts),
            late=draw(counts),
            kept=draw(st.booleans()),
            decided=draw(st.booleans()),
        )
        for _ in range(draw(st.integers(0, 2)))
    ]
    batches = [
        BatchPoint(batch_size=draw(st.integers(1, 4096)), throughput=draw(above_zero), latency=draw(above_zero))
        for _ in range(draw(st.integers(0, 2)))
    ]
    return LoadCurves(tuple(rates), tuple(batches))


@st.composite
def records(draw: st.DrawFn) -> Record:
    status = draw(st.sampled_from(STATUSES))
    names = draw(st.lists(st.sampled_from(sorted(METRICS)), max_size=4, unique=True))
    provenance_keys = st.sampled_from(["paper", "table", "row", "file", "line", "other"])
    return Record(
        name=draw(TEXT.filter(bool)),
        model=draw(cards()),
        task=draw(st.sampled_from(TASKS)),
        source=draw(st.sampled_from(SOURCES)),
        conditions=draw(CONDITIONS),
        metrics={name: draw(readings(name)) for name in names},
        status=status,
        reason=None if status == "ok" else draw(TEXT),
        provenance=draw(st.dictionaries(provenance_keys, st.one_of(TEXT, st.integers(0, 9999)), max_size=3)),
        environment=draw(FLAT),
        time=draw(st.sampled_from([None, "2026-11-15T21:40:00Z", "2026-11-15T21:40:00.25Z"])),
        load=draw(st.one_of(st.none(), load_curves())),
    )


def a_record(name: str = "vit_s16", value: float = 12.5, **changes: object) -> Record:
    """A plain record of a measured throughput, with any field changed."""
    fields: dict[str, object] = {
        "name": name,
        "model": CardFields("vit", "ViT", "baseline", "baseline", 2020, "own"),
        "task": "inference",
        "source": "measured",
        "conditions": {"img_size": 224, "batch_size": 8, "device": "cpu", "precision": "fp32"},
        "metrics": {"throughput": Reading(value, "img/s", max(0.0, value - 1), value + 1, "median of blocks")},
        "environment": {"device_name": "a processor", "torch": "2.15.0", "threads": 2},
        "time": "2026-11-15T21:40:00Z",
    }
    return Record(**(fields | changes))  # type: ignore[arg-type]
