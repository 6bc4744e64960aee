"""`favor measure`, `favor variability`, `favor doctor`: what models cost on this machine, and how certain that is."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from favor.cli.console import emit_json, emit_records, emit_table, examples
from favor.cli.evidence import Among
from favor.cli.options import add_command
from favor.cli.running import RepeatOption, StudyFolder, Wait, end, finish, print_refusals, repeat_of
from favor.cli.zoo import AsJson, ModelNames, load_plugins
from favor.errors import RequestError
from favor.terminal import note

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from favor.analyze.ranking import Request
    from favor.measurement.doctor import Diagnosis
    from favor.measurement.variability import Spread
    from favor.records.schema import Record
    from favor.study.resolved import ResolvedStudy

MEASURE_EXAMPLES = examples(
    ("favor measure vit_s16", "latency, throughput at the best batch size and memory of inference"),
    ("favor measure 'vit_*' swin_ti --study my-study", "records are saved as they come; run it again to continue"),
    ("favor measure 'vit_*' swin_ti --study my-study --repeat flagged", "repeat measurements with a flag such as busy"),
    ("favor measure 'vit_*' --study my-study --log wandb", "also send results to Weights & Biases"),
    ("favor measure vit_ti16 --phase training --batch-size 32 --optimizer adamw", "a training step of 32 images"),
    ("favor measure 'evit_s16(keep=0.5)'", "with other settings, in quotes because of the shell"),
    (
        "favor measure --for 'min-accuracy=84 prefer=latency' --among timm --study my-study",
        "only models that could be the answer",
    ),
    ("favor measure swin_ti --fit-memory 8GiB --json", "the largest batch that fits, for programs"),
    ("favor measure vit_s16 --precision amp --runtime compile --device cuda", "on a GPU"),
    ("favor measure vit_s16 --runtime onnxruntime --runtime openvino", "as it is deployed (docs/runtimes.md)"),
    ("favor measure vit_s16 --runtime openvino --precision int8 --calibration folder:photos", "quantized"),
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
        "inference_memory_best_batch": "at best batch",
        "file_size": "on disk",
        "preparation_time": "ready in",
        "top1_change": "top-1 change",
        "top1_agreement": "agreement",
        "max_batch_size": "max batch",
        "energy_per_image": "energy",
        "carbon_per_image": "carbon",
        "money_per_image": "money",
    },
    "training": {
        "train_step_time": "step",
        "train_throughput": "speed",
        "train_hours_per_epoch": "epoch",
        "train_memory": "memory",
        "train_max_batch_size": "max batch",
        "train_energy_per_image": "energy",
        "train_carbon_per_epoch": "carbon",
        "train_money_per_epoch": "money",
    },
}

Question = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="QUESTION",
        help="Measure only models that could be the answer to a question, such as 'min-accuracy=84 prefer=latency', "
        "until the answer is certain.",
    ),
]
PhaseName = Annotated[str, typer.Option("--phase", help="inference, training or both.")]

VARIABILITY_OPTIONS = frozenset(
    ("device", "precisions", "runtimes", "attention", "img_sizes", "num_classes", "batch_size", "budget", "threads")
)


def add_commands(app: typer.Typer) -> None:
    add_command(app, "measure", measure_command, MEASURE_EXAMPLES, "measure")
    add_command(app, "variability", variability_command, VARIABILITY_EXAMPLES, "measure", only=VARIABILITY_OPTIONS)
    app.command("doctor", epilog=DOCTOR_EXAMPLES)(doctor_command)


def measure_command(
    names: ModelNames = [],  # noqa: B006 - typer makes a new list
    question: Question = None,
    among: Among = None,
    phase: PhaseName = "inference",
    study: StudyFolder = None,
    repeat: RepeatOption = None,
    wait: Wait = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Measure time, memory and energy of models on this machine, each model and phase in its own process.

    If a model fails, the reason is recorded and the next one is measured. `docs/protocol.md` describes the protocol.
    """
    from favor.trace.conditions import phases_named

    jobs_to_repeat, phases = repeat_of(repeat), phases_named(phase)
    load_plugins()
    if question is not None:
        _check_question(names, study, repeat, phase, options)
        _measure_for(question, among, Path(str(study)), options, wait, as_json)
        return
    if not names:
        raise RequestError("name a model, such as vit_s16, or ask a question: --for 'min-accuracy=84 prefer=latency'")
    if among is not None:
        raise RequestError("--among needs --for; without a question, name the models: favor measure 'swin*'")
    from favor.study.options import study_from_options
    from favor.study.running import run_request

    request = study_from_options("measure", names, phases, options)
    ended = run_request(request, study, repeat=jobs_to_repeat, wait=wait)
    _print(ended.records, as_json)
    end(ended)


def _check_question(
    names: list[str], study: Path | None, repeat: str | None, phase: str, options: "Mapping[str, Any]"
) -> None:
    if names:
        raise RequestError(f"--for chooses the models itself; use --among PATTERN instead of {names[0]!r}")
    if study is None:
        raise RequestError("--for saves its measurements in a study and decides by them; name it with --study DIR")
    if repeat is not None or phase != "inference" or options.get("img_sizes"):
        raise RequestError(
            "--for measures inference at the image sizes of the accuracies; leave out --repeat, --phase and --img-size"
        )
    for option in ("runtimes", "precisions"):
        if len(options[option]) > 1:
            one = option.removesuffix("s")
            raise RequestError(f"--for compares models in one {one}; give --{one} once")
    if "int8" in options["precisions"]:
        raise RequestError(
            "--for decides by accuracies, which are unknown in int8; ask it with another --precision, then measure the "
            "favored model with --precision int8 --checkpoint RUN"
        )


def _check_meter(request: "Request", usual: "ResolvedStudy") -> None:
    """Refuse a question about energy where no meter can answer it."""
    from favor.machine.device import find_device
    from favor.machine.energy import energy_sources
    from favor.study.targeted import costs_of

    if "energy_per_image" not in costs_of(request):
        return
    if not usual.energy:
        raise RequestError("--for asks for energy, which --no-energy turns off; leave out one of them")
    device = find_device(usual.machine.device)
    meters = energy_sources(device.kind, device.torch_device.index or 0)
    if not any(meter.usable for meter in meters):
        why = ", ".join(f"{meter.name}: {meter.why}" for meter in meters)
        raise RequestError(f"--for asks for energy, and {device.kind} has no meter here ({why}); prefer another cost")


def _measure_for(
    text: str, among: str | None, study: Path, options: "Mapping[str, Any]", wait: bool, as_json: bool
) -> None:
    """Measure the models that could be the answer to a question, one after another, until it is sure; then answer."""
    from favor.analyze import recommend
    from favor.cli.decision_text import print_recommendation
    from favor.evidence import best_weights, load_evidence
    from favor.measurement.job import MeasureJob
    from favor.records.schema import CardFields, Record
    from favor.records.store import has_records
    from favor.study.options import study_from_options
    from favor.study.plan import jobs_of
    from favor.study.progress import records_of, states_of_all
    from favor.study.running import run_session
    from favor.study.sent_results import send_results
    from favor.study.session import Session, extend, working_in
    from favor.study.targeted import Step, measure_for, question, targets

    request = question(text, among).into([study])

    def asked(names: "Sequence[str]", img_size: int, **more: object) -> "ResolvedStudy":
        return study_from_options("measure", names, ["inference"], {**options, "img_sizes": [img_size], **more})

    def evidence() -> "pd.DataFrame":
        return load_evidence([study] if has_records(study) else [], timm=request.of_timm)[0]

    with working_in(study, wait):
        usual = asked(["resnet18"], 224)
        _check_meter(request, usual)
        (job,) = [job for job in jobs_of(usual) if isinstance(job, MeasureJob)]
        candidates = targets(evidence(), request, usual.machine.device_name)
        records, known = records_of(study), {}
        seen = {(record.name, record.conditions.get("img_size")) for record in records if record.task == "inference"}
        for candidate in candidates:
            if (candidate.name, candidate.img_size) in seen:
                with suppress(RequestError):  # measured with another timm, which had this model
                    (state,) = states_of_all([asked([candidate.name], candidate.img_size)], records)
                    if state.record is not None:
                        known[candidate.name, candidate.img_size] = state.record
        again, done = set(known), []

        def measure(name: str, img_size: int, budget: float) -> Record:
            try:
                model = asked([name], img_size, budget=budget)
            except RequestError as error:  # the installed timm does not have it
                return left_out(name, str(error))
            session = extend(model, study)
            done.append(model)
            ended = run_session(session, repeat="all" if (name, img_size) in again else None, wait=wait)
            finish(ended)
            again.add((name, img_size))
            if ended.records:
                return ended.records[-1]
            return left_out(name, str(ended.refused[0]) if ended.refused else "it was not measured")

        def left_out(name: str, why: str) -> Record:
            note(f"{name} is left out: {why}")
            return Record(name, CardFields(), "inference", "measured", status="failed", reason=why)

        def tell(step: Step) -> None:
            could = f"{step.open} of {len(candidates)} models could be the answer"
            note(f"{could}; next: {step.candidate.name} at {step.candidate.img_size} px ({step.chance:.0%})")

        answered = measure_for(candidates, request, known, measure, job.budget, tell)
        send_results(Session(tuple(done), study))
    precision = str(job.conditions["precision"])
    here = replace(request, device=usual.machine.label, runtime=job.runtime, precision=precision)
    answer = recommend(evidence(), here)
    if as_json:
        names = [f"{candidates[at].name}@{candidates[at].img_size}" for at in answered.measured]
        chance = None if answered.open else answered.chance
        emit_json({"candidates": len(candidates), "measured": names, "chance": chance, "answer": answer.to_dict()})
    else:
        print_recommendation(answer, {choice.name: best_weights(choice.name) for choice in answer.choices})
    note(f"measured {len(answered.measured)} of {len(candidates)} candidates: {answered.certainty}")
    if not answer.choices:
        raise typer.Exit(1)


def variability_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A model of the zoo, or timm:NAME.")],
    runs: Annotated[int, typer.Option(min=2, max=10_000, help="Number of runs, each in a new process.")] = 8,
    phase: PhaseName = "inference",
    wait: Wait = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Measure a model several times and show how much each metric varies: range and standard deviation."""
    from favor.measurement.variability import spreads
    from favor.trace.conditions import phases_named

    phases = phases_named(phase)
    load_plugins()
    from favor.study.options import study_from_options
    from favor.study.running import run_session
    from favor.study.session import Session

    request = study_from_options("measure", [name], phases, options)
    ended = run_session(Session((request,), None), times=runs, wait=wait)
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
    finish(ended, f"{len(usable)} of {len(ended.jobs)} runs were done")
    print_refusals(ended)
    if len(usable) < len(ended.jobs):
        raise typer.Exit(1)


def doctor_command(as_json: AsJson = False) -> None:
    """Show what can be measured on this machine and how well: devices, threads, load, memory, timer noise, energy."""
    from dataclasses import asdict

    from favor.measurement.doctor import NOISE_SECONDS, diagnose

    note(f"checking the load and the timer noise of this machine: about {NOISE_SECONDS + 1:.0f} s")
    diagnosis = diagnose()
    if as_json:
        emit_json(asdict(diagnosis))
    else:
        _print_diagnosis(diagnosis)


def _print(records: "list[Record]", as_json: bool) -> None:
    from favor.records.schema import EAGER
    from favor.units import format_quantity

    if as_json:
        emit_records(records)
        return
    for phase, headings in _SHOWN.items():
        rows = [record for record in records if record.task == phase]
        if not rows:
            continue
        present = [name for name in headings if any(name in record.metrics for record in rows)]
        titles = [headings[name] for name in present]
        first = rows[0].conditions
        batch = f"batch size {first['batch_size']}" if "batch_size" in first else "best batch size"
        ways = {key: {record.conditions.get(key) for record in rows} for key in ("precision", "runtime")}
        shared = [str(first[key]) for key in ways if len(ways[key]) == 1 and first.get(key, EAGER) != EAGER]
        several = [key for key in ways if len(ways[key]) > 1]
        emit_table(
            ", ".join((f"{phase.title()} on {first['device']}", *shared, batch)),
            ("model", "px", *several, *titles, "status"),
            [
                (
                    record.name,
                    str(record.conditions["img_size"]),
                    *(str(record.conditions[key]) for key in several),
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
        for record in rows:
            if "latency_p99_missing" in record.environment:
                way = "".join(f" {record.conditions.get(key)}" for key in several)
                note(f"no p99 of {record.name}{way}: {record.environment['latency_p99_missing']}")


def _spread_data(spread: "Spread") -> dict[str, object]:
    from dataclasses import asdict

    shares = {"range_percent": spread.range_share, "deviation_percent": spread.deviation_share}
    return {**asdict(spread), **shares}


def _print_spreads(title: str, spreads: "Sequence[Spread]") -> None:
    from favor.metrics import metric
    from favor.units import format_quantity

    numbers = ("Lowest", "Highest", "Mean", "Range", "Range, % of mean", "Standard deviation", "% of mean")
    rows = []
    for spread in spreads:
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


def _print_diagnosis(diagnosis: "Diagnosis") -> None:
    from favor.units import format_quantity

    timer = diagnosis.timer
    work = format_quantity(timer.work_median, "s")
    median = "interval unknown" if timer.interval_percent is None else f"± {timer.interval_percent:.2g} %"
    limited = f"by the system, on {diagnosis.memory_limit_on}" if diagnosis.memory_limit_on else "by prediction only"
    rows = [
        ("processor", f"{diagnosis.processor}, {diagnosis.processors} logical cores"),
        ("threads", f"{diagnosis.threads} (physical cores that this process may use)"),
        ("load", f"other programs use {diagnosis.others:.2f} cores; load average {diagnosis.load_average:.2f}"),
        ("busy", "yes: times measured now get the flag `busy`" if diagnosis.busy else "no"),
        ("memory", _free_memory(diagnosis.free_memory, diagnosis.total_memory)),
        ("memory limit", f"enforced {limited}"),
        ("clock", f"resolution {timer.resolution:.0e} s, {timer.reading_cost * 1e9:.0f} ns per reading"),
        ("timer noise", f"{work} of work: interquartile range {timer.middle_half_percent:.1f} % of the median"),
        ("", f"p99 {timer.p99_percent:+.0f} % from the median; median {median}"),
        ("--runtime compile", diagnosis.compiler or "needs a C++ compiler on the CPU; none was found"),
    ]
    for device in diagnosis.devices:
        memory = _free_memory(device.free_memory, device.total_memory)
        rows.append((f"device {device.kind}", f"{device.name}, recorded as {device.label!r}, {memory}"))
        rows += [
            (f"energy: {meter.name}", f"{'usable' if meter.usable else 'no'}: {meter.why}") for meter in device.energy
        ]
    emit_table("What can be measured here", ("", "Found"), rows)


def _free_memory(free: int, total: int) -> str:
    from favor.units import format_quantity

    return f"{format_quantity(free, 'B')} free of {format_quantity(total, 'B')}"
