"""`favor simulate` and `favor devices`: what models would cost on devices that you do not have."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, emit_records, emit_table, examples
from favor.cli.zoo import AsJson, ImgSize, ModelNames, NumClasses, load_plugins
from favor.errors import RequestError
from favor.terminal import SECONDS_BETWEEN_LINES, note, progress_bar

if TYPE_CHECKING:
    from typing import Literal

    from favor.records.schema import Reading, Record
    from favor.simulation.devices import Device
    from favor.simulation.simulation import SimulationRequest

SIMULATE_EXAMPLES = examples(
    ("favor simulate vit_s16 swin_ti --device a100,t4", "throughput at the best batch, latency and memory on two GPUs"),
    ("favor simulate 'vit_*' --device h100 --batch-size 256 --json", "at one batch size, for programs"),
    ("favor simulate vit_s16 --device h100 --runtime compile", "compiled with torch.compile"),
    ("favor simulate vit_b16 --device a100-80gb --phase training --batch-size 2048", "does a training step fit?"),
    ("favor simulate 'evit_s16(keep=0.5)' --device t4", "with other settings, in quotes because of the shell"),
    ("favor simulate vix_vit --device t4 --phase training --attention plain", "as papers before PyTorch 2.0 measured"),
    ("favor simulate 'timm:*' --device a100 --study timm", "all of timm; run it again to continue after a stop"),
    ("favor simulate vit_s16 --device my-gpu.yaml --study my-study", "your own device, saved in a study"),
)

DEVICES_EXAMPLES = examples(
    ("favor devices", "all devices"),
    ("favor devices a100 --json", "everything about one, with its sources"),
)

# Short headings, so that a row fits a terminal; the glossary has the whole names.
_SHOWN = {
    "throughput": "speed",
    "best_batch_size": "best batch",
    "latency_p50": "latency",
    "inference_memory": "memory",
    "inference_memory_best_batch": "at best batch",
    "max_batch_size": "max batch",
    "train_step_time": "step",
    "train_throughput": "speed",
    "train_hours_per_epoch": "epoch",
    "finetune_time": "fine-tuning",
    "train_memory": "memory",
    "train_max_batch_size": "max batch",
}
_TIMES = frozenset(
    {"throughput", "latency_p50", "train_step_time", "train_throughput", "train_hours_per_epoch", "finetune_time"}
)  # shown with their interval


def add_commands(app: typer.Typer) -> None:
    app.command("simulate", epilog=SIMULATE_EXAMPLES)(simulate_command)
    app.command("devices", epilog=DEVICES_EXAMPLES)(devices_command)


def complete_devices(incomplete: str) -> list[str]:
    """The devices whose names start with the text, for shell completion."""
    from favor.simulation.devices import built_in_devices

    return [device.name for device in built_in_devices() if device.name.startswith(incomplete)]


def simulate_command(
    names: ModelNames,
    device: Annotated[
        list[str],
        typer.Option(
            metavar="NAME[,NAME...]",
            help="Device names, or your own .yaml files; repeatable.",
            autocompletion=complete_devices,
        ),
    ],
    batch_size: Annotated[
        str | None,
        typer.Option(metavar="N|best", help="Batch size (default: best for inference, 64 for training)."),
    ] = None,
    precision: Annotated[str, typer.Option(help="fp32, bf16, amp (here amp-fp16), amp-fp16 or amp-bf16.")] = "amp",
    phase: Annotated[str, typer.Option(help="inference, training or both.")] = "inference",
    img_size: ImgSize = None,
    num_classes: NumClasses = 1000,
    optimizer: Annotated[str, typer.Option(help="Optimizer of the training step: lamb, adamw, adam or sgd.")] = "lamb",
    attention: Annotated[
        str, typer.Option(help="fused, or plain (keeps the attention matrix in memory, as before PyTorch 2.0).")
    ] = "fused",
    runtime: Annotated[
        str, typer.Option(metavar="eager|compile", help="eager PyTorch, or compiled by torch.compile (inference only).")
    ] = "eager",
    study: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Add the records to this study and correct times by its measurements."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate time and memory of models on GPUs that you do not have.

    Times and memory are computed from the model's operator trace and the device's specification, with intervals.
    Records have the source `simulated`; docs/simulation.md says how accurate they are.
    """
    from favor.simulation.devices import device as described
    from favor.simulation.simulation import SimulationRequest
    from favor.simulation.study_simulation import plan_simulations
    from favor.trace.conditions import phases_named

    batch = _batch_size(batch_size)
    requests = [
        SimulationRequest(
            named, precision, batch, img_size, num_classes, optimizer, attention=attention, runtime=runtime
        )
        for named in phases_named(phase)
    ]
    device_names = [name.strip() for names in device for name in names.split(",") if name.strip()]
    if not device_names:
        raise RequestError("--device: name a device; `favor devices` lists them")
    devices = list(dict.fromkeys(described(name) for name in device_names))
    load_plugins()
    from favor.zoo.matching import matching_models

    wanted = matching_models(names)
    plan = plan_simulations(wanted, devices, requests, study)
    for name, correction in plan.corrections.items():
        if correction.measurements:
            note(f"{name}: times corrected by {correction.factor:.3f} from {correction.measurements} measurements")
    total, to_do = len(wanted) * len(requests), sum(map(len, plan.left.values()))
    if to_do < total:
        note(f"{total - to_do} of {total} simulations are in {study} already")
    records, refusals = list(plan.done), {}
    with progress_bar() as bar:
        task = bar.add_task("simulating", total=to_do, visible=to_do > 1)
        lines = _Lines(to_do, is_needed=not bar.console.is_terminal)
        for simulated in plan.run():
            bar.update(task, description=simulated.name)
            if simulated.refusal is not None:
                refusals[simulated.name] = simulated.refusal
            records += simulated.records
            bar.advance(task)
            lines.after_one()
    if not records:
        raise next(iter(refusals.values()))
    if as_json:
        emit_records(records)
    else:
        for request in requests:
            _print([record for record in records if record.task == request.phase], request)
    for name, refusal in refusals.items():
        note(f"error: {name}: {refusal}")
    if refusals or all(record.status != "ok" for record in records):
        raise typer.Exit(1)


class _Lines:
    """Prints the time left every half minute, where no bar can be drawn."""

    def __init__(self, total: int, is_needed: bool) -> None:
        self._total, self._is_needed, self._done = total, is_needed, 0
        self._began = self._last = time.monotonic()

    def after_one(self) -> None:
        from favor.units import format_span

        self._done, now = self._done + 1, time.monotonic()
        if self._is_needed and now - self._last >= SECONDS_BETWEEN_LINES and self._done < self._total:
            self._last = now
            left = (now - self._began) / self._done * (self._total - self._done)
            note(f"{self._done} of {self._total} simulated; about {format_span(left)} left")


def devices_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[DEVICE]", help="A device name or .yaml file (default: all).", autocompletion=complete_devices
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the devices that favor can simulate, with their specifications."""
    from favor.simulation.devices import built_in_devices, device

    shown = built_in_devices() if name is None else (device(name),)
    if as_json:
        emit_json([entry.model_dump() for entry in shown])
        return
    columns = ("Name", "Device", "fp16", "bf16", "tf32", "fp32", "GB/s", "Cache", "Memory", "SMs", "MHz", "Sustained")
    rows = [
        (
            entry.name,
            entry.title,
            *(f"{peak:g}" if peak else "-" for peak in _peaks(entry)),
            f"{entry.bandwidth_gb_s:g}",
            f"{entry.cache_mb:g} MB",
            f"{entry.memory_gib:g} GiB",
            str(entry.multiprocessors),
            f"{entry.clock_mhz:g}",
            f"{entry.sustained:.0%}",
        )
        for entry in shown
    ]
    emit_table("Devices; matrix products in dense TFLOP/s with float32 accumulation", columns, rows, right=columns[2:])
    if name is not None:
        for source in shown[0].sources:
            note(f"source: {source}")


def _peaks(device: "Device") -> "tuple[float | None, ...]":
    return (device.tflops.fp16, device.tflops.bf16, device.tflops.tf32, device.tflops.fp32)


def _batch_size(text: str | None) -> "int | Literal['best'] | None":
    if text is None or text == "best":
        return "best" if text else None
    if not text.isdecimal() or int(text) < 1:
        raise RequestError(f"--batch-size: {text!r} is neither 'best' nor a whole number of 1 or more")
    return int(text)


def _print(records: "list[Record]", request: "SimulationRequest") -> None:
    present = [name for name in _SHOWN if any(name in record.metrics for record in records)]
    titles = [_SHOWN[name] for name in present]
    rows = []
    for record in records:
        cells = [_cell(name, record.metrics.get(name)) for name in present]
        best = record.environment.get("train_batch_size")
        batch = str(record.conditions.get("batch_size", "best" if best is None else f"best: {best}"))
        subject = (record.name, str(record.conditions["device"]), str(record.conditions["img_size"]), batch)
        rows.append((*subject, *cells, record.status))
    columns = ("Model", "Device", "px", "batch", *titles, "status")
    how = "compiled" if request.runtime == "compile" else "eager"
    about = f"{request.phase}, {how}, {request.precision}, {request.attention} attention"
    title = f"Simulated {about}; ± is half the 95 % interval"
    emit_table(title, columns, rows, right=columns[2:-1])
    for record in records:
        if record.status != "ok":
            note(f"{record.name} on {record.conditions['device']}: {record.reason}")


def _cell(name: str, reading: "Reading | None") -> str:
    from favor.units import format_quantity

    if reading is None:
        return ""
    text = format_quantity(reading.value, reading.unit)
    if name in _TIMES and reading.low is not None and reading.high is not None:
        return f"{text} ±{(reading.high - reading.low) / 2 / reading.value:.0%}"
    return text
