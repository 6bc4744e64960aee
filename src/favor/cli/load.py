"""`favor load`: how many images per second a model serves within a latency limit."""

from typing import TYPE_CHECKING, Any

import typer

from favor.cli.console import emit_records, emit_table, examples
from favor.cli.options import add_command
from favor.cli.running import RepeatOption, StudyFolder, Wait, end, repeat_of
from favor.cli.zoo import AsJson, ModelNames, load_plugins
from favor.terminal import note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from favor.records.schema import Record

LOAD_EXAMPLES = examples(
    ("favor load vit_s16 --p99 500ms", "the largest rate of random arrivals with 99 % of the answers within 500 ms"),
    ("favor load vit_ti16 swin_ti --p99 200ms --runtime openvino --study mine", "two models in OpenVINO, saved"),
    ("favor load vit_s16 --p99 500ms --scenario multi-stream", "several images per query, one query after another"),
    ("favor load vit_s16 --scenario offline --json", "all images at once, without a limit, for programs"),
    ("favor load vit_s16 --p99 500ms --budget 10min", "longer than two minutes, for a narrower interval"),
)


def add_commands(app: typer.Typer) -> None:
    add_command(app, "load", load_command, LOAD_EXAMPLES, "load")


def load_command(
    names: ModelNames,
    study: StudyFolder = None,
    repeat: RepeatOption = None,
    wait: Wait = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Find the largest load that models serve within a latency limit, on this machine, with dynamic batching.

    It runs MLCommons' load generator, by default for two minutes per model; this is not an MLPerf result.
    `docs/load.md` describes the method.
    """
    jobs_to_repeat = repeat_of(repeat)
    load_plugins()
    from favor.study.options import plain_options, study_from_options
    from favor.study.running import run_request
    from favor.study.schema import Load

    load = plain_options({name: options.pop(name) for name in Load.model_fields})
    request = study_from_options("load", names, ("load",), options, load=load)
    ended = run_request(request, study, repeat=jobs_to_repeat, wait=wait)
    print_loads(ended.records, as_json)
    end(ended)


def print_loads(records: "Sequence[Record]", as_json: bool) -> None:
    """A table of the largest loads, and from which load on another model is better; JSON for programs."""
    from favor.units import format_quantity

    if as_json:
        emit_records(records)
        return
    if not records:
        return
    first = records[0].conditions
    limit = f", p99 within {format_quantity(float(first['p99_limit']), 's')}" if "p99_limit" in first else ""
    ways = {key: {record.conditions[key] for record in records} for key in ("runtime", "precision")}
    shared = [str(first[key]) for key in ways if len(ways[key]) == 1]
    several = [key for key in ways if len(ways[key]) > 1]
    numbers = ("largest load", "95 % interval", "batches", "longest wait", "gains end at batch")
    emit_table(
        ", ".join((f"Load on {first['device']}", *shared, f"{first['scenario']}{limit}")),
        ("model", "px", *several, *numbers, "status"),
        [
            (
                record.name,
                str(record.conditions["img_size"]),
                *(str(record.conditions[key]) for key in several),
                *_cells(record),
                record.status if record.reason is None else f"{record.status}: {record.reason}",
            )
            for record in records
        ],
        right=("px", *numbers),
    )
    for record in records:
        if "max_qps" in record.metrics and not record.metrics["max_qps"].value:
            note(f"{record.name}: {_why_none(record)}")
    from favor.report.load import breakpoints, load_comparisons

    for compared in load_comparisons(records):
        for sentence in breakpoints(compared):
            note(f"{compared.setting}: {sentence}" if several else sentence)
    note("a short run of MLCommons' load generator, not an MLPerf result")


def _why_none(record: "Record") -> str:
    """Why no load meets the limit: the p99 at the lowest rate that was tested, or why no rate was tested."""
    from favor.units import format_quantity

    if record.load is None or not record.load.rates:
        return f"no load meets the limit; {record.metrics['max_qps'].method or 'no rate was tested'}"
    if record.conditions.get("scenario") != "server":  # streams have no lower rate to test
        return f"single images miss the limit; their p99 was {format_quantity(record.load.rates[0].p99, 's')}"
    lowest = min(record.load.rates, key=lambda point: point.rate)
    rate = format_quantity(lowest.rate, "img/s")
    late = f"no load from {rate} up meets the limit; p99 was {format_quantity(lowest.p99, 's')} at {rate}"
    return f"{late}; a larger --budget tests lower rates"


def _cells(record: "Record") -> tuple[str, str, str, str, str]:
    from favor.analyze.load_curves import gains_end
    from favor.units import format_number, format_quantity

    reading = record.metrics.get("max_qps")
    if reading is None:
        return "", "", "", "", ""
    wait = float(record.conditions.get("longest_wait", 0.0))
    return (
        format_quantity(reading.value, reading.unit),
        "unknown"
        if reading.low is None or reading.high is None
        else f"{format_number(reading.low)} to {format_quantity(reading.high, reading.unit)}",
        f"up to {record.conditions.get('largest_batch')}",
        format_quantity(wait, "s") if wait else "none",
        str(gains_end(record.load.batches if record.load else ()) or "not reached"),
    )
