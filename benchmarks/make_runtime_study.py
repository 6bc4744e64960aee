"""The finding of the study `runtimes` in docs/runtimes.md: who changes places between runtimes, and who gains most.

    favor run runtimes --study runs/runtimes                      # 30 to 45 minutes on a quiet machine
    python benchmarks/make_runtime_study.py runs/runtimes         # writes the section below its mark
    python benchmarks/make_runtime_study.py runs/runtimes --ship  # and ships the records as `example:runtimes`

Two models change places if each is faster in one of two runtimes, and their 95 % intervals do not overlap in either.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from favor.analyze.rank_changes import Gain, RankChange, gains, rank_changes
from favor.atomic_file import write_whole
from favor.records.example import as_example
from favor.records.schema import EAGER, Record, to_line
from favor.records.store import read
from favor.report.runtimes import METRIC, change_row, gain_text, speed_rows, speeds_of

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs/runtimes.md"
EXAMPLE = ROOT / "src/favor/records/example/runtimes.jsonl"
MARK, END = "<!-- study: python benchmarks/make_runtime_study.py STUDY -->", "<!-- end of the study -->"


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
    rows, changes = speed_rows(speeds), rank_changes(speeds)
    if not changes:
        raise SystemExit("the study needs two models that ran in the same two ways")
    lines = [
        finding(changes, gains(speeds, EAGER)),
        "",
        f"{len(rows)} models on {machine(records)}: images per second at the best batch size that was found, with "
        f"the speedup over eager mode in parentheses. {quality(records)}",
        "",
        "| model | " + " | ".join(speeds) + " |",
        "|---|" + "---|" * len(speeds),
        *(f"| `{name}` | {' | '.join(told)} |" for name, *told in rows),
        "",
        "Pairs of models that change places, by their values and beyond their 95 % intervals:",
        "",
        "| between | and | by their values | beyond intervals | which |",
        "|---|---|---|---|---|",
        *(f"| {' | '.join(change_row(change))} |" for change in changes),
        "",
        *(f"- {gain_text(gain)}" for gain in gains(speeds, EAGER)),
        "- The weights are random, so the accuracies of int8 models are unknown, and int8 is never recommended.",
    ]
    return "\n".join(lines)


def finding(changes: Sequence[RankChange], over_eager: Sequence[Gain]) -> str:
    """How much the ranking changes, and which way to run is the fastest, in two sentences."""
    by_values = sorted(change.by_numbers for change in changes)
    most = max(changes, key=lambda change: len(change.beyond_intervals))
    fastest = max(over_eager, key=lambda gain: gain.mean)
    return (
        f"{fastest.way} is the fastest of {len(over_eager) + 1} ways to run: {fastest.mean:.2f} times the speed of "
        f"eager mode (geometric mean). From one way to another, {by_values[0]} to {by_values[-1]} of {most.pairs} "
        f"pairs of models change their order by their values, and up to {len(most.beyond_intervals)} beyond their "
        f"intervals ({most.one} and {most.other})."
    )


def quality(records: Sequence[Record]) -> str:
    """How far the measurements can be trusted, in a few sentences."""
    timed = [record for record in records if METRIC in record.metrics]
    budgets = sorted(float(record.environment["budget"]) for record in timed)
    wide = sum(f"{METRIC}:wide" in str(record.environment.get("flags", "")) for record in timed)
    ended = sum(record.environment.get(f"{METRIC}_search_ended") == "budget" for record in timed)
    cells = Counter((record.name, str(record.conditions)) for record in timed)
    busy, again = sum(map(is_busy, timed)), sum(count > 1 for count in cells.values())
    repeated = f" {again} were repeated; their intervals cover both results." if again else ""
    return (
        f"Of the {len(timed)} measurements (budget {budgets[0]:.2g} to {budgets[-1]:.2g} s), {wide or 'none'} have a "
        f"wide interval and {busy or 'none'} were taken while other programs ran; {ended} searches for the best batch "
        f"size ended because the budget ran out.{repeated}"
    )


def is_busy(record: Record) -> bool:
    """Whether other programs disturbed a measurement."""
    return "busy" in str(record.environment.get("flags", "")).split()


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
