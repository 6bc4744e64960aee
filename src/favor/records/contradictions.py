"""Results that contradict each other: at least one of them is wrong, so they are flagged and measured again.

They are found when records are read, because a later measurement can resolve them. Imports no torch.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import msgspec

from favor.metrics import METRICS
from favor.records.counted import counted_records
from favor.records.repeated import asked_conditions, that_counts
from favor.records.schema import EAGER, MACHINE_COLUMNS, Reading, Record, Scalar
from favor.units import format_quantity

CONTRADICTORY = "contradictory"
REASON = "contradictions"
"""The key of `environment` with the reasons in words."""

TOLERANCE = 0.2
"""The share by which numbers of one model may contradict each other, since they were measured one after the other."""

LARGER = 2.0
"""With this many times the multiply-adds, a model is larger than another one of its family, whatever their shapes."""

LEAST_OF_WEIGHTS = 0.8
"""The share of the weights that the inference form may have left, where it fuses layers."""

_SHARED = ("img_size", "device", "precision", "runtime", "attention", "batch", "batch_size", "optimizer")
_SPEED = {"inference": "throughput", "training": "train_throughput"}
_Sized = tuple[str, Scalar | None]
"""A model's name and its image size."""


def flagged(records: Sequence[Record]) -> tuple[Record, ...]:
    """The records, those that contradict themselves or others with flags such as `throughput:contradictory`.

    Of repeated measurements only the one that counts is judged, as it is the one in the table.
    """
    counting = measurements_that_count(records)
    if not counting:
        return tuple(records)
    counts = _counts(records)
    contradictions: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for number in counting:
        contradictions[number] += [*_within(records[number]), *_with_the_trace(records[number], counts)]
    for family in _comparable(records, counting):
        for number, contradiction in _by_size(family, records, counts):
            contradictions[number].append(contradiction)
    return tuple(_with_flags(record, contradictions.get(number, [])) for number, record in enumerate(records))


def measurements_that_count(records: Sequence[Record]) -> tuple[int, ...]:
    """The positions of the successful measurements that count: one of each model, phase, conditions and machine."""
    repeated: dict[object, list[int]] = defaultdict(list)
    for number, record in enumerate(records):
        if record.source == "measured" and record.status == "ok" and record.task in _SPEED:
            subject = (record.name, record.task, frozenset(asked_conditions(record).items()), _machine(record))
            repeated[subject].append(number)
    return tuple(some[that_counts([records[number] for number in some])] for some in repeated.values())


def _with_flags(record: Record, contradictions: list[tuple[str, str]]) -> Record:
    if not contradictions:
        return record
    flags = dict.fromkeys([*str(record.environment.get("flags", "")).split(), *(flag for flag, _ in contradictions)])
    reasons = "; ".join(dict.fromkeys(reason for _, reason in contradictions))
    return msgspec.structs.replace(
        record, environment={**record.environment, "flags": " ".join(flags), REASON: reasons}
    )


def _within(record: Record) -> Iterator[tuple[str, str]]:
    """Throughput against latency: the best batch is at least as good as single images, and takes longer than one."""
    throughput, latency = record.metrics.get("throughput"), record.metrics.get("latency_p50")
    best = record.metrics.get("best_batch_size")
    if throughput is None or latency is None or best is None or record.conditions.get("batch") != "best":
        return
    if _high(throughput) * _high(latency) < 1 - TOLERANCE:
        fast, slow = _text("throughput", throughput), _text("latency_p50", latency)
        yield _flag("throughput"), f"{fast} at the best batch size is less than single images reach ({slow} each)"
    if _low(throughput) * _low(latency) > (1 + TOLERANCE) * best.value:
        fast, slow = _text("throughput", throughput), _text("latency_p50", latency)
        yield _flag("latency"), f"{slow} for one image is longer than a batch of {best.value:g} takes at {fast}"


def _with_the_trace(record: Record, counts: Mapping[_Sized, Record]) -> Iterator[tuple[str, str]]:
    """Exact memory against the counts: the weights at least, and all activations at most."""
    memory, counted = record.metrics.get("inference_memory"), counts.get(_sized(record))
    if memory is None or counted is None or not memory.method.startswith("exact"):
        return
    of_count, of_record = counted.conditions, record.conditions
    same_head = of_count.get("num_classes") == of_record.get("num_classes")
    if not same_head or of_record.get("precision") != "fp32" or of_record.get("runtime", EAGER) != EAGER:
        return
    weights, activations = (counted.metrics[name].value for name in ("weight_bytes", "activations"))
    side = float(of_record["img_size"])
    images = 3 * side * side
    least, most = LEAST_OF_WEIGHTS * weights, weights + 4 * (activations + 2 * images)
    if not least <= memory.value <= most:
        bounds = " to ".join(format_quantity(bound, "B") for bound in (least, most))
        yield (
            _flag("inference_memory"),
            f"{_text('inference_memory', memory)} is outside of what its trace allows ({bounds})",
        )


def _comparable(records: Sequence[Record], counting: Iterable[int]) -> list[Collection[int]]:
    """The measurements that count of each family, one per model, under the same conditions on the same machine."""
    families: dict[object, dict[str, int]] = defaultdict(dict)
    for number in counting:
        record = records[number]
        if record.model.family is not None:
            conditions = tuple(map(record.conditions.get, _SHARED))
            families[record.model.family, record.task, conditions, _machine(record)][record.name] = number
    return [models.values() for models in families.values()]


def _machine(record: Record) -> tuple[object, ...]:
    return tuple(map(record.environment.get, MACHINE_COLUMNS.values()))


def _by_size(
    family: Collection[int], records: Sequence[Record], counts: Mapping[_Sized, Record]
) -> Iterator[tuple[int, tuple[str, str]]]:
    """Much larger models that are faster than smaller ones of their family, beyond their intervals."""
    by_work = []
    for number in family:
        record, counted = records[number], counts.get(_sized(records[number]))
        speed = record.metrics.get(_SPEED[record.task])
        if counted is not None and speed is not None and counted.metrics["macs"].value > 0:
            by_work.append((counted.metrics["macs"].value, number, _low(speed), _high(speed)))
    for (work, small, _, high), (more, large, low, _) in combinations(sorted(by_work), 2):
        if more < LARGER * work or low <= high:
            continue
        metric = _SPEED[records[small].task]
        fast, slow = (_text(metric, records[number].metrics[metric]) for number in (large, small))
        reason = (
            f"{records[large].name} ({more / work:.1f} times the multiply-adds) is faster than "
            f"{records[small].name}: {fast} against {slow}"
        )
        for number in (small, large):
            yield number, (_flag(metric), reason)


def _counts(records: Sequence[Record]) -> dict[_Sized, Record]:
    """The counts of each model and image size; a study's own take precedence over those that ship with favor."""
    return {
        _sized(record): record
        for record in (*counted_records(), *records)
        if record.task == "count" and {"macs", "weight_bytes", "activations"} <= record.metrics.keys()
    }


def _sized(record: Record) -> _Sized:
    return record.name, record.conditions.get("img_size")


def _flag(metric: str) -> str:
    return f"{metric}:{CONTRADICTORY}"


def _text(metric: str, reading: Reading) -> str:
    return format_quantity(reading.value, METRICS[metric].unit)


def _low(reading: Reading) -> float:
    return reading.value if reading.low is None else reading.low


def _high(reading: Reading) -> float:
    return reading.value if reading.high is None else reading.high
