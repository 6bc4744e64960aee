"""`favor measure`, `favor variability`, `favor doctor`: what models cost here, and how well that can be told."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, emit_table, examples, note, progress_bar
from favor.cli.count import expand
from favor.cli.zoo import AsJson, load_plugins
from favor.errors import RequestError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from rich.console import Console

    from favor.measure.doctor import Diagnosis
    from favor.measure.meters import Measured
    from favor.measure.request import Request, Settings
    from favor.measure.variability import Spread
    from favor.records.schema import Record
    from favor.records.store import Problem
    from favor.trace.conditions import Phase

MEASURE_EXAMPLES = examples(
    ("favor measure vit_s16", "latency, throughput at the best batch size and memory of inference"),
    ("favor measure 'vit_*' swin_ti --into my-study", "kept as they come; called again, it goes on where it stopped"),
    ("favor measure 'vit_*' swin_ti --into my-study --again", "what has a flag such as busy is measured once more"),
    ("favor measure vit_ti16 --phase training --batch-size 32 --optimizer adamw", "a training step of 32 images"),
    ("favor measure swin_ti --fit-memory 8GiB --json", "the largest batch that fits, for programs"),
    ("favor measure vit_s16 --precision amp --compile --device cuda", "on a GPU"),
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

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Names or patterns with * and ?; also timm:NAME.")]
DeviceName = Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:N or mps; the fastest unless given.")]
PrecisionName = Annotated[str, typer.Option("--precision", help="fp32, bf16, or amp (automatic mixed precision).")]
Compile = Annotated[bool, typer.Option("--compile", help="Compile the model with torch.compile.")]
ImgSize = Annotated[int | None, typer.Option("--img-size", help="Image side in px; each model's own unless given.")]
Classes = Annotated[int, typer.Option("--num-classes", help="Classes of the head.")]
PhaseName = Annotated[str, typer.Option("--phase", help="inference, training or both.")]
BatchSize = Annotated[
    str | None,
    typer.Option(
        "--batch-size",
        metavar="N|best",
        help="Images at once. Unless given: the best, searched, for inference; 8 (CPU) or 64 for training.",
    ),
]
Budget = Annotated[
    float, typer.Option("--budget", help="Seconds for each measurement of a model: latency, search, memory ...")
]
Optimizer = Annotated[str, typer.Option("--optimizer", help="Of the training step: lamb, adamw, adam or sgd.")]
ReferenceBatch = Annotated[int, typer.Option("--reference-batch", help="Batch that the hours per epoch are for.")]
EpochImages = Annotated[int, typer.Option("--epoch-images", help="Images of an epoch; ImageNet-1k's unless given.")]
Threads = Annotated[int | None, typer.Option("--threads", help="On the CPU; the physical cores unless given.")]
MemoryLimit = Annotated[
    str | None, typer.Option("--memory-limit", metavar="SIZE", help="For a model's process, such as 4GiB.")
]
TimeLimit = Annotated[float | None, typer.Option("--time-limit", help="Seconds for a model's process.")]
FitMemory = Annotated[
    str | None, typer.Option("--fit-memory", metavar="SIZE", help="Find the largest batch that fits, such as 8GiB.")
]
GridIntensity = Annotated[float | None, typer.Option("--grid-intensity", help="Your grid's gCO2e per kWh.")]
PricePerHour = Annotated[float | None, typer.Option("--price-per-hour", help="What an hour of the device costs.")]


def add_commands(app: typer.Typer) -> None:
    app.command("measure", epilog=MEASURE_EXAMPLES)(measure_command)
    app.command("variability", epilog=VARIABILITY_EXAMPLES)(variability_command)
    app.command("doctor", epilog=DOCTOR_EXAMPLES)(doctor_command)


def measure_command(
    names: Names,
    device: DeviceName = None,
    precision: PrecisionName = "fp32",
    compiled: Compile = False,
    img_size: ImgSize = None,
    num_classes: Classes = 1000,
    phase: PhaseName = "inference",
    batch_size: BatchSize = None,
    budget: Budget = 20.0,
    optimizer: Optimizer = "lamb",
    reference_batch: ReferenceBatch = 2048,
    epoch_images: EpochImages = 1_281_167,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
    time_limit: TimeLimit = None,
    fit_memory: FitMemory = None,
    grid_intensity: GridIntensity = None,
    price_per_hour: PricePerHour = None,
    into: Annotated[Path | None, typer.Option(metavar="STUDY", help="Add the records to this study folder.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Measure what the study has with a flag, such as busy, once more.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure models on this machine: time, memory and energy, each model and phase in a process of its own.

    A model that fails is a record with its reason, and the next one goes on. `docs/protocol.md` says how it is done.
    """
    from favor.measure.request import Settings

    settings = Settings(
        phases=_phases(phase),
        device=device,
        precision=precision,
        compiled=compiled,
        img_size=img_size,
        num_classes=num_classes,
        batch_size=_batch_size(batch_size),
        budget=budget,
        time_limit=time_limit,
        memory_limit=_bytes("--memory-limit", memory_limit),
        threads=threads,
        optimizer=optimizer,
        reference_batch=reference_batch,
        epoch_images=epoch_images,
        fit_memory=_bytes("--fit-memory", fit_memory),
        grid_intensity=grid_intensity,
        price_per_hour=price_per_hour,
    )
    load_plugins()
    records, was_interrupted = _measure_all(expand(names), settings, into, again)
    if as_json:
        from favor.records.schema import to_data

        emit_json([to_data(record) for record in records])
    else:
        _print(records)
    if was_interrupted:
        goes_on = f"{into} keeps what was found, and the same command goes on from there"
        note(f"interrupted; {goes_on if into else 'with --into STUDY the same command would go on where it stopped'}")
        raise typer.Exit(130)
    if any(record.status != "ok" for record in records):
        raise typer.Exit(1)


def variability_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A model of the zoo, or timm:NAME.")],
    runs: Annotated[int, typer.Option(min=2, help="How often everything is measured, each time in a new process.")] = 8,
    device: DeviceName = None,
    precision: PrecisionName = "fp32",
    compiled: Compile = False,
    img_size: ImgSize = None,
    num_classes: Classes = 1000,
    phase: PhaseName = "inference",
    batch_size: BatchSize = None,
    budget: Budget = 20.0,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Measure a model several times and print how much every metric varies: its range and standard deviation."""
    from favor.measure.request import Settings
    from favor.measure.variability import spreads

    settings = Settings(
        phases=_phases(phase),
        device=device,
        precision=precision,
        compiled=compiled,
        img_size=img_size,
        num_classes=num_classes,
        batch_size=_batch_size(batch_size),
        budget=budget,
        threads=threads,
    )
    load_plugins()
    records, was_interrupted = _measure_all([name] * runs, settings)
    usable = [record for record in records if record.status == "ok"]
    found = {each: spreads([record for record in usable if record.task == each]) for each in settings.phases}
    if as_json:
        rows = [{"name": name, "phase": each, **_spread_data(spread)} for each in found for spread in found[each]]
        emit_json(rows)
    else:
        for each in found:
            _print_spreads(f"{name}, {each}: {runs} runs", found[each])
    if was_interrupted:
        note(f"interrupted after {len(records)} of {runs * len(settings.phases)} runs")
        raise typer.Exit(130)
    if len(usable) < len(records):
        raise typer.Exit(1)


def doctor_command(as_json: AsJson = False) -> None:
    """Say what can be measured on this machine and how well: devices, threads, counters, timer noise, memory, load."""
    from dataclasses import asdict

    from favor.measure.doctor import NOISE_SECONDS, diagnose

    note(f"watching the machine and timing the same work again and again: about {NOISE_SECONDS + 1:.0f} s")
    found = diagnose()
    if as_json:
        emit_json(asdict(found))
    else:
        _print_diagnosis(found)


def _phases(phase: str) -> "tuple[Phase, ...]":
    from favor.trace.conditions import PHASES

    chosen: dict[str, tuple[Phase, ...]] = {"both": PHASES, **{each: (each,) for each in PHASES}}
    if phase not in chosen:
        raise unknown_name("phase", phase, chosen, "choose from inference, training, both")
    return chosen[phase]


def _batch_size(text: str | None) -> "int | Literal['best'] | None":
    if text is None:
        return None
    if text == "best":
        return "best"
    if not text.isdecimal() or int(text) < 1:
        raise RequestError(f"--batch-size: {text!r} is neither a whole number of 1 or more nor 'best'")
    return int(text)


def _bytes(option: str, text: str | None) -> int | None:
    from favor.units import parse_quantity

    return None if text is None else int(parse_quantity(text, "B", option))


def _measure_all(
    names: list[str], settings: "Settings", study: Path | None = None, again: bool = False
) -> "tuple[list[Record], bool]":
    """Measure with a line per model, above a bar on a terminal; the records, and whether Ctrl-C ended it."""
    from favor.machine.device import find_device
    from favor.measure.meters import Interrupted, flags_of, measure_all, requests_for

    device = find_device(settings.device)
    requests = requests_for(names, settings, device)
    records: list[Record] = []
    there_already: list[Record] = []
    with progress_bar() as bar:
        task = bar.add_task("starting", total=len(requests))

        def show(request: "Request", step: str) -> None:
            bar.update(task, description=f"{request.name} {request.phase}: {step}")

        try:
            told = partial(_tell_problem, bar.console)
            for measured in measure_all(requests, device, study, show, again, told):
                records.append(measured.record)
                there_already += [measured.record] if measured.was_there else []
                bar.advance(task)
                line = f"[{len(records)}/{len(requests)}] {_line(measured)}"
                bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        except Interrupted as interruption:
            return [*records, interruption.record], True
    if there_already:
        note(f"{len(there_already)} of {len(requests)} were in {study} already and were not measured again")
        flagged = sum(1 for record in there_already if flags_of(record))
        if flagged:
            note(f"{flagged} of them with flags; --again measures those once more")
    return records, False


def _tell_problem(console: "Console", problem: "Problem") -> None:
    console.print(f"warning: {problem}", markup=False, highlight=False, soft_wrap=True)


def _line(measured: "Measured") -> str:
    from favor.measure.meters import flags_of

    record = measured.record
    what = "in the study already, not measured again" if measured.was_there else record.status
    reason = f": {record.reason}" if record.reason else ""
    raised = flags_of(record)
    flags = f" ({raised})" if raised else ""
    return f"{record.name} {record.task}: {what}{reason}{flags}"


def _print(records: "list[Record]") -> None:
    from favor.units import format_quantity

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
