"""What runs in the child process: one model, one phase, every figure handed over as soon as it is known.

`python -P -m favor.measure.worker FD` reads a request from the first line of stdin and writes JSON lines to the file
descriptor FD. When stdin ends the parent is gone, and this process ends too.
"""

import gc
import os
import sys
import threading
from typing import TYPE_CHECKING

from favor.errors import FavorError
from favor.machine.messages import Channel
from favor.measure.request import Request

if TYPE_CHECKING:
    from favor.measure.bench import Bench


def main() -> None:
    """Take the request, watch the parent, measure."""
    answers = int(sys.argv[1])
    os.set_inheritable(answers, False)
    request = Request.from_json(sys.stdin.readline())
    # Blocked in the system, this thread takes no time from the measurement.
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    run(request, Channel(lambda line: os.write(answers, line.encode())))


def _end_with_the_parent() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def run(request: Request, channel: Channel) -> None:
    """Measure what is asked; whatever a model raises is told as its failure, with its traceback on stderr."""
    channel.begin("imports")
    from favor.machine.memory import is_out_of_memory

    try:
        _measure(request, channel)
    except Exception as error:
        what = str(error) if isinstance(error, FavorError) else f"{type(error).__name__}: {error}"
        channel.failed("out_of_memory" if is_out_of_memory(error) else "failed", what)
        raise
    channel.done()


def _measure(request: Request, channel: Channel) -> None:
    import torch

    from favor.machine.clock import WallClock
    from favor.machine.device import find_device
    from favor.machine.energy import find_energy_meter
    from favor.machine.environment import describe, glance, is_busy, look_at_load, others_between
    from favor.machine.memory import process_peak
    from favor.measure.bench import Bench
    from favor.zoo.registry import load_plugin

    torch.set_num_threads(request.threads)
    device = find_device(request.device)
    meter = find_energy_meter(device.kind, device.place.index or 0) if request.energy else None
    environment = describe(device, request.threads, request.plugins)
    processors = int(environment["processors"])
    channel.environment(environment | {"budget": request.budget, "energy_meter": meter.method if meter else "none"})
    if request.compiled:
        channel.environment({"compile_mode": "inductor"})
    channel.begin("load of the machine")
    load_before = look_at_load()
    channel.environment({"others_before": round(load_before, 3), "load_average": round(os.getloadavg()[0], 2)})
    if is_busy(load_before, processors):
        channel.flag("busy")
    channel.begin("building")
    if request.memory_limit is not None:
        bounded = device.limit_memory(request.memory_limit)
        channel.environment({"memory_limit": request.memory_limit, "memory_limit_on": bounded or "nothing"})
    for plugin in request.plugins:
        load_plugin(plugin)
    # What the libraries have made stays: collecting garbage before each timing need not go through it.
    gc.freeze()
    start = glance()
    bench = Bench(device, WallClock(), channel, request.budget, request.memory_limit, meter)
    try:
        _measure_phase(bench, request)
    finally:
        # Pages of libraries that are touched later on are resident, too, and no limit of ours is on them.
        if device.kind == "cpu" and request.memory_limit is not None and process_peak() > request.memory_limit:
            channel.flag("memory_limit:exceeded")
        load_during = others_between(start, glance())
        channel.environment({"others_during": round(load_during, 3)})
        if is_busy(load_during, processors):
            channel.flag("busy")


def _measure_phase(bench: "Bench", request: Request) -> None:
    from favor.measure.inference import measure_inference
    from favor.measure.training import measure_training
    from favor.trace.workload import Inference, Precision, Training, build
    from favor.zoo.fuse import inference_form
    from favor.zoo.operating_point import operating_point

    place, precision = bench.device.place, Precision.named(request.precision, bench.device.kind)
    model = build(request.name, request.phase, request.img_size, request.num_classes)
    bench.channel.conditions(operating_point(model))
    if request.phase == "inference":
        model, fused = inference_form(model)
        bench.channel.conditions({"fused": fused})
        measure_inference(bench, Inference(model, request.img_size, place, precision, request.compiled), request)
    else:
        training = Training(model, request.img_size, place, precision, request.compiled, request.optimizer)
        measure_training(bench, training, request)


if __name__ == "__main__":
    main()
