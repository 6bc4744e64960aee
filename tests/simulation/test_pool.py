"""Many models in several processes: what one process gives, in the order of the names."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest
from msgspec import structs

from favor.errors import WorkError
from favor.simulation.devices import device
from favor.simulation.pool import Simulated, already_simulated, simulate_several
from favor.simulation.simulation import SimulationRequest

NAMES = ["hydra_xs4", "vit_xs4", "linformer_xs4"]
REQUEST = SimulationRequest(batch_size=4, num_classes=10)


def without_times(found: list[Simulated]) -> list[tuple[str, list[object]]]:
    return [(each.name, [structs.replace(record, time=None) for record in each.records]) for each in found]


def test_two_processes_give_what_one_gives_and_a_refusal_stops_none(calibration):
    devices = [device("a100"), device("t4")]
    names = [*NAMES, "nothing_xs4"]
    one, two = (list(simulate_several(names, devices, REQUEST, calibration, {}, processes)) for processes in (1, 2))
    assert without_times(one) == without_times(two)
    assert [len(each.records) for each in two] == [2, 2, 2, 0]
    assert [str(each.refusal) for each in one] == [str(each.refusal) for each in two]
    assert "unknown model 'nothing_xs4'" in str(two[-1].refusal)


class Killing:
    """Kills the process that receives it."""

    def __reduce__(self):
        return signal.raise_signal, (signal.SIGKILL,)


def test_a_process_that_is_killed_is_told(calibration):
    with pytest.raises(WorkError, match="hydra_xs4: a worker was killed"):
        list(simulate_several(NAMES[:1], [device("a100")], REQUEST, calibration, {"a100": Killing()}, processes=2))


KILLED = """
import os, psutil, signal
from favor.simulation.calibration import shipped_calibration
from favor.simulation.devices import device
from favor.simulation.pool import simulate_several
from favor.simulation.simulation import SimulationRequest

next(simulate_several(["vit_xs4"] * 3, [device("t4")], SimulationRequest(), shipped_calibration(), {}, processes=2))
print(*(child.pid for child in psutil.Process().children()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_when_the_main_process_is_killed():
    main = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    # Not to the end of the output, which workers that are left would hold open.
    workers = [int(pid) for pid in main.stdout.readline().split()]
    assert workers
    assert main.wait(timeout=60) == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while (left := [pid for pid in workers if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_record_is_used_again_only_for_the_image_size_and_the_attention_of_its_request(calibration):
    devices = [device("a100")]
    requests = [REQUEST, replace(REQUEST, img_size=36), replace(REQUEST, attention="plain")]
    for simulated in requests:
        (model,) = simulate_several(["vit_xs4"], devices, simulated, calibration, {})
        done = [already_simulated(["vit_xs4"], devices, asked, calibration, {}, model.records) for asked in requests]
        assert [bool(kept) for kept in done] == [asked == simulated for asked in requests]
    at_its_own_size = replace(REQUEST, img_size=32)
    (model,) = simulate_several(["vit_xs4"], devices, REQUEST, calibration, {})
    assert already_simulated(["vit_xs4"], devices, at_its_own_size, calibration, {}, model.records)
