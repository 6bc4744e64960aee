"""The finding of the study `runtimes` in docs/runtimes.md: who changes places between runtimes, and who gains most.

    favor run runtimes --study runs/runtimes                      # 30 to 45 minutes on a quiet machine
    python benchmarks/make_runtime_study.py runs/runtimes         # writes the section below its mark
    python benchmarks/make_runtime_study.py runs/runtimes --ship  # and ships the records as `example:runtimes`

Two models change places if each is faster in one of two runtimes, and their 95 % intervals do not overlap in either.
"""

import argparse
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from favor.atomic_file import write_whole
from favor.records.example import as_example
from favor.records.schema import EAGER, Record, to_line
from favor.records.store import read

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs/runtimes.md"
EXAMPLE = ROOT / "src/favor/records/example/runtimes.jsonl"
MARK, END = "<!-- study: python benchmarks/make_runtime_study.py STUDY -->", "<!-- end of the study -->"
METRIC = "throughput"


@dataclass(frozen=True)
class Speed:
    """Images per second with the 95 % interval, which is endless where none is known."""

    value: float
    low: float
    high: float


Speeds = Mapping[str, Mapping[str, Speed]]
"""By way to run, such as `openvino int8`, and model."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--ship", action="store_true")
    asked = parser.parse_args()
    records = read(asked.study).records
    write_whole(DOCS, with_section(DOCS.read_text(), section(records)).encode())
    if asked.ship:
        write_whole(EXAMPLE, b"".join(to_line(as_example(record, EXAMPLE.stem)) for record in records))


def section(records: Sequence[Record]) -> str:
    """The table of speeds and the finding in words."""
    speeds = speeds_of(records)
    if EAGER not in speeds or len(speeds) < 2:
        raise SystemExit("the study needs models in eager mode and in another runtime")
    ways = [EAGER, *(way for way in speeds if way != EAGER)]
    models = sorted(speeds[EAGER], key=lambda name: -speeds[EAGER][name].value)
    lines = [
        f"{len(models)} models on {machine(records)}: images per second at the best batch size that was found, with "
        "the speedup over eager mode in brackets.",
        "",
        f"**These are short measurements.** {quality(records)}",
        "",
        "| model | " + " | ".join(ways) + " |",
        "|---|" + "---|" * len(ways),
        *(f"| `{name}` | " + " | ".join(_told(speeds, way, name) for way in ways) + " |" for name in models),
        "",
        *moves(speeds, ways),
        "",
        *(f"- {sentence}" for sentence in gains(speeds, ways)),
        "- The weights are random, so the accuracies of int8 models are unknown, and int8 is never recommended.",
    ]
    return "\n".join(lines)


def quality(records: Sequence[Record]) -> str:
    """How far the measurements can be trusted, in a few sentences."""
    timed = [record for record in records if METRIC in record.metrics]
    budgets = sorted(float(record.environment["budget"]) for record in timed)
    wide = sum(f"{METRIC}:wide" in str(record.environment.get("flags", "")) for record in timed)
    ended = sum(record.environment.get(f"{METRIC}_search_ended") == "budget" for record in timed)
    cells = Counter((record.name, str(record.conditions)) for record in timed)
    busy, again = sum(map(is_busy, timed)), sum(count > 1 for count in cells.values())
    return (
        f"Each of the {len(timed)} measurements had a budget of {budgets[0]:g} to {budgets[-1]:g} s. "
        f"{'All' if wide == len(timed) else wide} have a wide interval, "
        f"{busy} were taken while other programs ran, and {ended} searches for the best batch size ended with the "
        f"budget. {again} cells were measured again; their interval covers both measurements."
    )


def is_busy(record: Record) -> bool:
    """Whether other programs disturbed a measurement."""
    return "busy" in str(record.environment.get("flags", "")).split()


def speeds_of(records: Sequence[Record]) -> dict[str, dict[str, Speed]]:
    """The newest throughput of every model in every way to run; the interval covers those of all its measurements."""
    found: dict[str, dict[str, Speed]] = {}
    for record in records:
        if record.task != "inference" or record.status != "ok" or METRIC not in record.metrics:
            continue
        runtime, precision = str(record.conditions.get("runtime", EAGER)), record.conditions["precision"]
        way = runtime if precision == "fp32" else f"{runtime} {precision}"
        reading = record.metrics[METRIC]
        low = -math.inf if reading.low is None else reading.low
        high = math.inf if reading.high is None else reading.high
        before = found.setdefault(way, {}).get(record.name)
        if before is not None and not is_busy(record):
            low, high = min(low, before.low), max(high, before.high)
        found[way][record.name] = Speed(reading.value, low, high)
    return found


def moves(speeds: Speeds, ways: Sequence[str]) -> list[str]:
    """A table of how many pairs change their order between two ways to run: by the numbers, and beyond intervals."""
    lines = [
        "Pairs of models that change places, by the numbers and beyond their 95 % intervals:",
        "",
        "| between | and | by the numbers | beyond intervals | which |",
        "|---|---|---|---|---|",
    ]
    for one, other in combinations(ways, 2):
        pairs = list(combinations(sorted(speeds[one].keys() & speeds[other].keys()), 2))
        sure = [pair for pair in pairs if changes_places(speeds[one], speeds[other], *pair)]
        points = [{name: exactly(speeds[way][name]) for name in speeds[way]} for way in (one, other)]
        moved = [pair for pair in pairs if changes_places(*points, *pair)]
        named = "; ".join(f"{a} and {b}" for a, b in sure)
        lines.append(f"| {one} | {other} | {len(moved)} of {len(pairs)} | {len(sure)} | {named} |")
    return lines


def exactly(speed: Speed) -> Speed:
    """The speed without its interval."""
    return Speed(speed.value, speed.value, speed.value)


def gains(speeds: Speeds, ways: Sequence[str]) -> list[str]:
    """Who gains most and least in each way to run."""
    told = []
    for way in ways[1:]:
        ratios = {
            name: speeds[way][name].value / speeds[EAGER][name].value
            for name in speeds[way].keys() & speeds[EAGER].keys()
        }
        if ratios:
            most, least = max(ratios, key=ratios.__getitem__), min(ratios, key=ratios.__getitem__)
            middle = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
            told.append(
                f"{way}: {middle:.2f} times the speed of eager mode (geometric mean); {most} gains most "
                f"({ratios[most]:.2f}), {least} least ({ratios[least]:.2f})."
            )
    return told


def changes_places(one: Mapping[str, Speed], other: Mapping[str, Speed], a: str, b: str) -> bool:
    """Whether `a` is surely faster than `b` in one, and surely slower in the other.

    >>> fast, slow = Speed(12.0, 11.0, 13.0), Speed(10.0, 9.0, 10.5)
    >>> changes_places({"a": fast, "b": slow}, {"a": slow, "b": fast}, "a", "b")
    True
    >>> changes_places({"a": fast, "b": slow}, {"a": slow, "b": Speed(10.2, 9.9, 10.9)}, "a", "b")
    False
    """
    orders = {_order(one[a], one[b]), _order(other[a], other[b])}
    return orders == {-1, 1}


def _order(a: Speed, b: Speed) -> int:
    return 1 if a.low > b.high else -1 if a.high < b.low else 0


def _told(speeds: Speeds, way: str, name: str) -> str:
    found, eager = speeds[way].get(name), speeds[EAGER][name]
    if found is None:
        return "missing"
    return f"{found.value:.3g}" if way == EAGER else f"{found.value:.3g} ({found.value / eager.value:.2f})"


def machine(records: Sequence[Record]) -> str:
    """Processor, threads and versions, from the records."""
    kept: dict[str, str] = {}
    for record in records:
        for key in ("device_name", "threads", "torch", "onnxruntime", "openvino"):
            if key in record.environment:
                kept[key] = str(record.environment[key])
    versions = ", ".join(f"{key} {kept[key]}" for key in ("torch", "onnxruntime", "openvino") if key in kept)
    return f"{kept.get('device_name', 'an unknown machine')} ({kept.get('threads', '?')} threads, {versions})"


def with_section(text: str, made: str) -> str:
    """The page with what stands between the marks replaced."""
    before, _, rest = text.partition(MARK)
    _, _, after = rest.partition(END)
    return f"{before}{MARK}\n\n{made}\n\n{END}{after}"


if __name__ == "__main__":
    main()
