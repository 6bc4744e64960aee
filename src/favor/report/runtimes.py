"""Models in several runtimes on the page: their speeds, and which models change places between two runtimes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from favor.analyze.flags import is_disturbed
from favor.analyze.rank_changes import Gain, RankChange, Speed, Speeds, gains, rank_changes
from favor.records.repeated import that_counts
from favor.records.schema import EAGER, Record
from favor.report.setting_text import setting_text
from favor.text import first_few, plural
from favor.units import format_number

METRIC = "throughput"
_SHOWN = 4
_NARROW = 0.05


@dataclass(frozen=True)
class RuntimesSection:
    """The runtimes of one setting as the page shows them: speeds by model, changes by pair of runtimes, and gains."""

    setting: str
    ways: tuple[str, ...]
    speeds: tuple[tuple[str, ...], ...]
    changes: tuple[tuple[str, ...], ...]
    gains: tuple[str, ...]


def runtimes_sections(records: Iterable[Record]) -> tuple[RuntimesSection, ...]:
    """A section for every setting in which models ran in several runtimes."""
    return tuple(_section(setting, speeds) for setting, speeds in speeds_by_setting(records).items())


def runtimes_finding(records: Iterable[Record]) -> str | None:
    """Which models change places between runtimes, in one line; None if no two models ran in several runtimes."""
    changes = [change for speeds in speeds_by_setting(records).values() for change in rank_changes(speeds)]
    if not changes:
        return None
    sure = [
        f"{a} and {b} between {change.one} and {change.other}" for change in changes for a, b in change.beyond_intervals
    ]
    by_numbers = sum(change.by_numbers for change in changes)
    compared = plural(sum(change.pairs for change in changes), "comparison")
    which = f": {first_few(sure, _SHOWN, '; ')}" if sure else ""
    return f"Between runtimes, models change places in {by_numbers} of {compared}, {len(sure)} beyond intervals{which}"


def speeds_by_setting(records: Iterable[Record]) -> dict[str, Speeds]:
    """The speeds in every setting in which models ran in several runtimes."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if _is_timed(record):
            groups.setdefault(setting_text(record, without=("runtime", "precision")), []).append(record)
    found = {setting: speeds_of(group) for setting, group in groups.items()}
    return {setting: speeds for setting, speeds in found.items() if len({way.partition(" ")[0] for way in speeds}) > 1}


def speeds_of(records: Iterable[Record]) -> Speeds:
    """The throughput that counts of every model in every way to run, eager mode first.

    The interval covers those of all measurements; it has no upper end where other programs ran.
    """
    repeated: dict[str, dict[str, list[Record]]] = {}
    for record in filter(_is_timed, records):
        runtime, precision = str(record.conditions.get("runtime", EAGER)), record.conditions.get("precision", "fp32")
        way = runtime if precision == "fp32" else f"{runtime} {precision}"
        repeated.setdefault(way, {}).setdefault(record.name, []).append(record)
    ways = sorted(repeated, key=lambda way: way != EAGER)
    return {way: {name: _speed(some) for name, some in repeated[way].items()} for way in ways}


def _is_timed(record: Record) -> bool:
    return record.task == "inference" and record.status == "ok" and METRIC in record.metrics


def _speed(repeated: Sequence[Record]) -> Speed:
    readings, counts = [record.metrics[METRIC] for record in repeated], that_counts(repeated)
    # Other load only slows a model down, by an unknown factor.
    is_busy = is_disturbed(repeated[counts].environment.get("flags"))
    return Speed(
        readings[counts].value,
        min(-math.inf if reading.low is None else reading.low for reading in readings),
        max(math.inf if reading.high is None or is_busy else reading.high for reading in readings),
    )


def speed_rows(speeds: Speeds) -> list[tuple[str, ...]]:
    """Models by their speed in the first way to run, and in every way their speed, with the ratio to eager mode."""
    ways = list(speeds)
    names = dict.fromkeys(name for way in ways for name in speeds[way])
    fastest = sorted(names, key=lambda name: -speeds[ways[0]][name].value if name in speeds[ways[0]] else math.inf)
    return [(name, *(_speed_text(speeds, way, name) for way in ways)) for name in fastest]


def _speed_text(speeds: Speeds, way: str, name: str) -> str:
    found, eager = speeds[way].get(name), speeds.get(EAGER, {}).get(name)
    if found is None:
        return "missing"
    ratio = "" if way == EAGER or eager is None else f" ({found.value / eager.value:.2f})"
    return f"{format_number(found.value)}{_doubt(found)}{ratio}"


def _doubt(speed: Speed) -> str:
    """The half width of an interval that is unknown, or wider than a table of such numbers suggests."""
    half = max(speed.high - speed.value, speed.value - speed.low)
    if math.isinf(half):
        return " ± ?"
    return f" ± {format_number(half)}" if half > (1 + 1e-9) * _NARROW * speed.value else ""


def change_row(change: RankChange) -> tuple[str, ...]:
    """Between which ways, how many pairs change places by the numbers and beyond intervals, and which."""
    named = "; ".join(f"{a} and {b}" for a, b in change.beyond_intervals)
    return change.one, change.other, f"{change.by_numbers} of {change.pairs}", str(len(change.beyond_intervals)), named


def gain_text(gain: Gain) -> str:
    """Which models gain most and least, in a sentence."""
    (most, best), (least, worst) = gain.most, gain.least
    return (
        f"{gain.way}: {gain.mean:.2f} times the speed of eager mode (geometric mean); {most} gains most "
        f"({best:.2f}), {least} least ({worst:.2f})."
    )


def _section(setting: str, speeds: Speeds) -> RuntimesSection:
    changes = tuple(map(change_row, rank_changes(speeds)))
    return RuntimesSection(
        setting, tuple(speeds), tuple(speed_rows(speeds)), changes, tuple(map(gain_text, gains(speeds, EAGER)))
    )
