"""`favor measure`, `favor variability`, `favor doctor`: what models cost here, and how well that can be told."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from favor.cli.console import emit_json, emit_table, examples, note
from favor.cli.options import add_command, study_from_options
from favor.cli.running import RepeatOption, StudyFolder, Wait, repeat_of, run_session
from favor.cli.zoo import AsJson, load_plugins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from favor.measurement.doctor import Diagnosis
    from favor.measurement.variability import Spread
    from favor.records.schema import Record

MEASURE_EXAMPLES = examples(
    ("favor measure vit_s16", "latency, throughput at the best batch size and memory of inference"),
    ("favor measure 'vit_*' swin_ti --study my-study", "kept as they come; called again, it goes on where it stopped"),
    ("favor measure 'vit_*' swin_ti --study my-study --repeat flagged", "what has a flag such as busy, once more"),
    ("favor measure vit_ti16 --phase training --batch-size 32 --optimizer adamw", "a training step of 32 images"),
    ("favor measure 'evit_s16(keep=0.5)'", "with other settings, in quotes because of the shell"),
    ("favor measure swin_ti --fit-memory 8GiB --json", "the largest batch that fits, for programs"),
    ("favor measure vit_s16 --precision amp --compile --device cuda", "on a GPU"),
    ("favor measure vit_s16 --phase training --attention plain", "as papers before PyTorch 2.0 measured"),
)

VARIABILITY_EXAMPLES = examples(
    ("favor variability vit_s16 --runs 8", "as in the benchmark's Figure 7"),
    ("favor variability vit_ti16 --phase both --budget 5 --json", "shorter, for programs"),
)

DOCTOR_EXAMPLES = examples(
    ("favor doctor", "what can be measured here, and how well"),
    ("favor doctor --json", "for programs"),
)

# Short headings, so that a row fits a terminal; the glossary has the whole names.
_SHOWN = {
    "inference": {
        "latency_p50": "p50",
        "latency_p90": "p90",
        "latency_p99": "p99",
        "throughput": "speed",
        "best_batch_size": "best batch",
        "inference_memory": "memory",
        "inference_memory_best_batch": "at best",
        "max_batch_size": "fits",
        "energy_per_image": "energy",
        "carbon_per_image": "carbon",
        "money_per_image": "money",
    },
    "training": {
        "train_step_time": "step",
        "train_throughput": "speed",
        "train_hours_per_epoch": "epoch",
        "train_memory": "memory",
        "train_max_batch_size": "fits",
        "train_energy_per_image": "energy",
        "train_carbon_per_epoch": "carbon",
        "train_money_per_epoch": "money",
    },
}

Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Names, patterns with * and ?, how:CLASS; also timm:NAME.")
]
PhaseName = Annotated[str, typer.Option("--phase", help="inference, training or both.")]

VARIABILITY_OPTIONS = frozenset(
    ("device", "precisions", "compile", "attention", "img_sizes", "num_classes", "batch_size", "budget", "threads")
)


def add_commands(app: typer.Typer) -> None:
    add_command(app, "measure", measure_command, MEASURE_EXAMPLES, "measure")
    add_command(app, "variability", variability_command, VARIABILITY_EXAMPLES, "measure", only=VARIABILITY_OPTIONS)
    app.command("doctor", epilog=DOCTOR_EXAMPLES)(doctor_command)


def measure_command(
    names: Names,
    phase: PhaseName = "inference",
    study: StudyFolder = None,
    repeat: RepeatOption = None,
    wait: Wait = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Measure models on this machine: time, memory and energy, each model and phase in a process of its own.

    A model that fails is a record with its reason, and the next one goes on. `docs/protocol.md` says how it is done.
    """
    from favor.trace.conditions import phases_named

    asked_repeat, phases = repeat_of(repeat), phases_named(phase)
    load_plugins()
    asked = study_from_options("measure", names, phases, options)
    from favor.study.session import extend, working_in

    with working_in(study, wait):
        ended = run_session(extend(asked, study), repeat=asked_repeat, wait=wait)
    _print(ended.records, as_json)
    keeps = "the same command goes on from there"
    ended.finish(keeps if study else "with --study DIR the same command would go on where it stopped")
    if any(record.status != "ok" for record in ended.records):
        raise typer.Exit(1)


def variability_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A model of the zoo, or timm:NAME.")],
    runs: Annotated[int, typer.Option(min=2, help="How often everything is measured, each time in a new process.")] = 8,
    phase: PhaseName = "inference",
    wait: Wait = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Measure a model several times and print how much every metric varies: its range and standard deviation."""
    from favor.measurement.variability import spreads
    from favor.trace.conditions import phases_named

    phases = phases_named(phase)
    load_plugins()
    asked = study_from_options("measure", [name], phases, options)
    from favor.study.session import extend

    ended = run_session(extend(asked, None), times=runs, wait=wait)
    usable = [record for record in ended.records if record.status == "ok"]
    by_phase = {phase: spreads([record for record in usable if record.task == phase]) for phase in phases}
    if as_json:
        rows = [
            {"name": name, "phase": phase, **_spread_data(entry)} for phase in by_phase for entry in by_phase[phase]
        ]
        emit_json(rows)
    else:
        for phase in by_phase:
            _print_spreads(f"{name}, {phase}: {runs} runs", by_phase[phase])
    ended.finish(f"{len(usable)} of {len(ended.jobs)} runs were done")
    if len(usable) < len(ended.jobs):
        raise typer.Exit(1)


def doctor_command(as_json: AsJson = False) -> None:
    """Say what can be measured on this machine and how well: devices, threads, counters, timer noise, memory, load."""
    from dataclasses import asdict

    from favor.measurement.doctor import NOISE_SECONDS, diagnose

    note(f"watching the machine and timing the same work again and again: about {NOISE_SECONDS + 1:.0f} s")
    found = diagnose()
    if as_json:
        emit_json(asdict(found))
    else:
        _print_diagnosis(found)


def _print(records: "list[Record]", as_json: bool) -> None:
    from favor.units import format_quantity

    if as_json:
        from favor.records.schema import to_data

        emit_json([to_data(record) for record in records])
        return
    for phase, headings in _SHOWN.items():
        rows = [record for record in records if record.task == phase]
        if not rows:
            continue
        present = [name for name in headings if any(name in record.metrics for record in rows)]
        titles = [headings[name] for name in present]
        first = rows[0].conditions
        batch = f"batch size {first['batch_size']}" if "batch_size" in first else "best batch size"
        emit_table(
            f"{phase.title()} on {first['device']}, {first['precision']}, {batch}",
            ("model", "px", *titles, "status"),
            [
                (
                    record.name,
                    str(record.conditions["img_size"]),
                    *(
                        format_quantity(record.metrics[name].value, record.metrics[name].unit)
                        if name in record.metrics
                        else ""
                        for name in present
                    ),
                    record.status,
                )
                for record in rows
            ],
            right=("px", *titles),
        )


def _spread_data(spread: "Spread") -> dict[str, object]:
    from dataclasses import asdict

    shares = {"range_percent": spread.range_share, "deviation_percent": spread.deviation_share}
    return {**asdict(spread), **shares}


def _print_spreads(title: str, found: "Sequence[Spread]") -> None:
    from favor.metrics import metric
    from favor.units import format_quantity

    numbers = ("Lowest", "Highest", "Mean", "Range", "% of mean", "Standard deviation", "% of the mean")
    rows = []
    for spread in found:
        values = (spread.lowest, spread.highest, spread.mean)
        rows.append(
            (
                metric(spread.metric).title,
                str(spread.runs),
                *(format_quantity(value, spread.unit) for value in values),
                format_quantity(spread.highest - spread.lowest, spread.unit),
                f"{spread.range_share:.2f}",
                format_quantity(spread.deviation, spread.unit),
                f"{spread.deviation_share:.2f}",
            )
        )
    emit_table(title, ("Metric", "Runs", *numbers), rows, right=("Runs", *numbers))


def _print_diagnosis(found: "Diagnosis") -> None:
    from favor.units import format_quantity

    timer = found.timer
    work = format_quantity(timer.work_median, "s")
    known = "not known" if timer.interval_percent is None else f"known to ±{timer.interval_percent:.2g} %"
    bounded = f"by the system, on {found.memory_limit_on}" if found.memory_limit_on else "by prediction only"
    rows = [
        ("processor", f"{found.processor}, {found.processors} logical"),
        ("threads", f"{found.threads} (physical cores that this process may use)"),
        ("load", f"others use {found.others:.2f} processors now; load average {found.load_average:.2f}"),
        ("busy", "yes: times taken now are flagged" if found.busy else "no"),
        ("memory", f"{_gib(found.free_memory)} free of {_gib(found.total_memory)}"),
        ("memory limit", f"kept {bounded}"),
        ("clock", f"step {timer.resolution:.0e} s, {timer.reading_cost * 1e9:.0f} ns to read"),
        ("timer noise", f"of {work} of work: middle half within {timer.middle_half_percent:.1f} %"),
        ("", f"p99 {timer.p99_percent:+.0f} %, median {known}"),
        ("--compile", found.compiler or "no C++ compiler found: it needs one on the CPU"),
    ]
    for device in found.devices:
        memory = f"{_gib(device.free_memory)} free of {_gib(device.total_memory)}"
        rows.append((f"device {device.kind}", f"{device.name}, recorded as {device.label!r}, {memory}"))
        rows += [(f"energy: {way.name}", f"{'usable' if way.usable else 'no'}: {way.why}") for way in device.energy]
    emit_table("What can be measured here", ("", "Found"), rows)


def _gib(size: int) -> str:
    from favor.units import format_quantity

    return format_quantity(size, "B")
