"""The measuring worker: one model, one phase; every figure is sent as soon as it is known."""

import gc
import math
import os
from typing import TYPE_CHECKING

from favor.machine.messages import Channel
from favor.machine.worker import serve
from favor.measurement.job import MeasureJob

if TYPE_CHECKING:
    from favor.measurement.bench import Bench
    from favor.trace.workload import Workload


def run(request: str, channel: Channel) -> None:
    """Run the requested measurement."""
    measure(MeasureJob.from_json(request), channel)
    channel.done()


def measure(job: MeasureJob, channel: Channel) -> None:
    import torch

    from favor.machine.clock import WallClock
    from favor.machine.device import find_device
    from favor.machine.energy import find_energy_meter
    from favor.machine.environment import describe, glance, is_busy, look_at_load, others_between
    from favor.machine.memory import process_peak
    from favor.measurement.bench import Bench
    from favor.trace.attention import attention_implementation
    from favor.zoo.registry import load_plugin

    torch.set_num_threads(job.threads)
    device = find_device(job.device)
    meter = find_energy_meter(device.kind, device.torch_device.index or 0) if job.energy else None
    environment = describe(device, job.threads, job.plugins)
    processors = int(environment["processors"])
    channel.environment(environment | {"budget": job.budget, "energy_meter": meter.method if meter else "none"})
    if job.runtime == "compile":
        channel.environment({"compile_mode": "inductor"})
    channel.begin("load of the machine")
    load_before = look_at_load()
    channel.environment({"others_before": round(load_before, 3), "load_average": round(os.getloadavg()[0], 2)})
    if is_busy(load_before, processors) and not job.in_turns:
        channel.flag("busy")
    channel.begin("building")
    if job.memory_limit is not None:
        bounded = device.limit_memory(job.memory_limit)
        channel.environment({"memory_limit": job.memory_limit, "memory_limit_on": bounded or "nothing"})
    for plugin in job.plugins:
        load_plugin(plugin)
    # Objects of the libraries stay alive, so the garbage collection before each timing can skip them.
    gc.freeze()
    start = glance()
    bench = Bench(device, WallClock(), channel, job.budget, job.memory_limit, meter, job.time_limit or math.inf)
    try:
        with attention_implementation(job.attention):
            measure_phase(bench, job)
    finally:
        # Library pages that are touched later become resident too, and our limit does not cover them.
        if device.kind == "cpu" and job.memory_limit is not None and process_peak() > job.memory_limit:
            channel.flag("memory_limit:exceeded")
        # Workers that take turns look at the load in their own turns only.
        if not job.in_turns:
            load_during = others_between(start, glance())
            channel.environment({"others_during": round(load_during, 3)})
            if is_busy(load_during, processors):
                channel.flag("busy")


def measure_phase(bench: "Bench", job: MeasureJob) -> None:
    import psutil

    from favor.measurement.in_turns import measure_in_turns
    from favor.measurement.inference import measure_inference
    from favor.measurement.load import measure_load
    from favor.measurement.training import measure_training
    from favor.trace.workload import Precision, Training, build
    from favor.zoo.operating_point import operating_point

    if job.phase == "training":
        device, precision = bench.device.torch_device, Precision.named(job.precision, bench.device.kind)
        model = build(job.name, job.phase, job.img_size, job.num_classes)
        bench.channel.conditions(operating_point(model))
        training = Training(model, job.img_size, device, precision, job.runtime == "compile", job.optimizer)
        measure_training(bench, training, job)
        return
    inference = _file_inference(bench, job) if job.needs_file else _torch_inference(bench, job)
    if job.phase == "load":
        measure_load(bench, inference, job)
    elif job.in_turns:
        measure_in_turns(bench, inference, job, psutil.cpu_count() or 1)
    else:
        measure_inference(bench, inference, job)


def _torch_inference(bench: "Bench", job: MeasureJob) -> "Workload":
    """The model in PyTorch. Compiling is timed here, by the first call, and is no part of any other time."""
    from favor.trace.workload import Inference, Precision, build
    from favor.zoo.fuse import inference_form
    from favor.zoo.operating_point import operating_point

    model, fused = inference_form(build(job.name, "inference", job.img_size, job.num_classes))
    bench.channel.conditions({**operating_point(model), "fused": fused})
    precision = Precision.named(job.precision, bench.device.kind)
    inference = Inference(model, job.img_size, bench.device.torch_device, precision, job.runtime == "compile")
    if job.runtime == "compile":
        bench.channel.begin("compiling")
        call, began = inference.at(1), bench.clock.now()
        call.run()
        bench.device.synchronize()
        method = "first call at batch size 1, which compiles with empty caches; other sizes compile at their first call"
        bench.channel.found("preparation_time", bench.clock.now() - began, method)
    return inference


def _file_inference(bench: "Bench", job: MeasureJob) -> "Workload":
    from pathlib import Path

    from favor.measurement.file_workload import FileInference
    from favor.runtime.exported import ExportedModel
    from favor.runtime.session import Choice

    assert job.exported is not None  # noqa: S101 - the parent has exported the model
    choice = Choice(job.runtime, job.precision, job.device, job.threads)
    return FileInference(ExportedModel.load(Path(job.exported)), choice, job.img_size, bench.channel)


if __name__ == "__main__":
    serve(run, when_the_parent_ends=lambda: os._exit(1))
