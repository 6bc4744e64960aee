"""The parent's side with children that hang, crash, are killed, print rubbish or leave others behind."""

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from favor.errors import RequestError
from favor.machine import process as parent
from favor.machine.messages import Findings, RubbishError
from favor.machine.process import (
    Exit,
    InterruptedJob,
    MemoryBefore,
    kills_for_memory,
    supervise,
    supervise_in_turns,
)

PRELUDE = """
import json, os, signal, subprocess, sys, time
answers = int(sys.argv[1])
def tell(**message):
    os.write(answers, (json.dumps(message) + "\\n").encode())
request = sys.stdin.readline()
"""

LATENCY_ANSWER = '{"metric": "latency_p50", "value": 0.5, "low": null, "high": null, "method": "test"}'
LATENCY = 'tell(step="latency"); tell(metric="latency_p50", value=0.5, low=None, high=None, method="test")\n'


def child(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", PRELUDE + script)


def run(script: str, time_limit: float = 30.0, **options):
    return supervise(child(script), "{}", time_limit=time_limit, **options)


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


def test_what_a_child_finds_arrives_with_its_conditions_flags_and_environment():
    found = run(
        'tell(conditions={"fused": True}); tell(environment={"torch": "2"}); tell(flags=["busy"]);'
        + LATENCY
        + 'tell(status="ok", reason=None)'
    )
    assert (found.status, found.reason) == ("ok", None)
    assert found.conditions == {"fused": True}
    assert found.environment == {"torch": "2"}
    assert found.flags == ["busy"]
    assert found.metrics["latency_p50"].value == 0.5
    assert found.metrics["latency_p50"].unit == "s"


def test_the_request_is_the_first_line_of_the_childs_input():
    found = supervise(child('tell(status="failed", reason=request.strip())'), '{"name": "x"}', time_limit=30)
    assert found.reason == '{"name": "x"}'


def test_steps_are_told_as_they_come():
    steps = []
    run(
        'tell(step="imports"); tell(step="latency"); tell(step="latency"); tell(status="ok", reason=None)',
        on_step=steps.append,
    )
    assert steps == ["imports", "latency"]


def test_a_crash_keeps_what_was_found_and_tells_the_step_and_the_last_words():
    found = run(
        LATENCY + 'tell(step="throughput"); print("assertion 7 failed", file=sys.stderr, flush=True); os.abort()'
    )
    assert found.status == "failed"
    assert found.reason == "throughput: killed by SIGABRT; last line of stderr: assertion 7 failed"
    assert "latency_p50" in found.metrics


def test_an_early_exit_is_a_failure():
    found = run(LATENCY + "sys.exit(3)")
    assert (found.status, found.reason) == ("failed", "latency: ended with exit code 3")


def test_a_hang_ends_at_the_time_limit_and_keeps_what_was_found():
    start = time.monotonic()
    found = run(LATENCY + 'tell(step="throughput"); time.sleep(600)', time_limit=1.0)
    assert (found.status, found.reason) == ("timeout", "throughput: did not finish within 1 s")
    assert "latency_p50" in found.metrics
    assert time.monotonic() - start < 10


def test_a_hang_that_ignores_signals_and_shouts_ends_too():
    found = run(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: os.write(2, b'rubbish' * 1000)", time_limit=1.0
    )
    assert found.status == "timeout"


def test_rubbish_on_stdout_and_stderr_does_no_harm():
    found = run(
        'sys.stdout.write(chr(123) * 10**6 + "\\x00\\xff"); sys.stderr.write("%s {" * 10**6);'
        + LATENCY
        + 'tell(status="ok", reason=None)'
    )
    assert found.status == "ok"
    assert list(found.metrics) == ["latency_p50"]


ANSWER = '{"metric": "latency_p50", "value": %s, "low": null, "high": null, "method": "x"}'
RUBBISH = {
    "rubbish": "not JSON",
    "": "not JSON",
    "[1]": "not a JSON object",
    "[" * 10**5: "not JSON",
    ANSWER % "NaN": "'value' cannot be nan",
    ANSWER % "1e999": "'value' cannot be inf",
    ANSWER % "true": "'value' cannot be True",
    (ANSWER % 1).replace("latency_p50", "nope"): "'metric' cannot be 'nope'",
    '{"metric": "latency_p50", "value": 1}': "without high, low, method",
    '{"metric": ["latency_p50"]}': "'metric' cannot be ['latency_p50']",
    '{"status": "splendid", "reason": null}': "'status' cannot be 'splendid'",
    '{"flags": "busy"}': "'flags' cannot be 'busy'",
    '{"conditions": {"a": [1]}}': "'conditions' cannot be {'a': [1]}",
    '{"greeting": "hello"}': "'greeting' cannot be 'hello'",
}


@pytest.mark.parametrize(("line", "why"), RUBBISH.items(), ids=range(len(RUBBISH)))
def test_rubbish_among_the_answers_is_a_failure_that_keeps_what_came_before(line, why):
    findings = Findings()
    findings.take((LATENCY_ANSWER).encode())
    with pytest.raises(RubbishError, match=re.escape(why)):
        findings.take(line.encode())
    assert list(findings.metrics) == ["latency_p50"]


def test_a_child_that_writes_rubbish_among_its_answers_is_ended_and_a_failed_record():
    # it says afterwards that all is well, and would go on for ten minutes
    found = run(LATENCY + 'os.write(answers, b"rubbish\\xff\\n"); tell(status="ok", reason=None); time.sleep(600)')
    assert found.status == "failed"
    assert found.reason.startswith("latency: malformed message from the worker: 'rubbish")
    assert found.reason.endswith("(not JSON)")
    assert "latency_p50" in found.metrics


def test_a_line_without_an_end_does_not_fill_the_parents_memory():
    found = run("while True: os.write(answers, b'x' * 2**16)")
    assert found.status == "failed"
    assert "longer than 1048576 bytes" in found.reason


def test_a_kill_by_the_system_for_memory_is_out_of_memory(monkeypatch):
    kills = iter([4, 5])
    monkeypatch.setattr(parent, "kills_for_memory", lambda: next(kills))
    found = run(LATENCY + "os.kill(os.getpid(), signal.SIGKILL)")
    assert found.status == "out_of_memory"
    assert found.reason == "latency: killed by the system because memory ran out"
    assert "latency_p50" in found.metrics


def test_a_kill_by_someone_else_is_a_failure(monkeypatch):
    monkeypatch.setattr(parent, "kills_for_memory", lambda: 4)
    found = run("os.kill(os.getpid(), signal.SIGKILL)")
    assert (found.status, found.reason) == ("failed", "start: killed by SIGKILL")


def test_where_kills_are_not_counted_a_process_that_had_most_of_the_memory_was_killed_for_it(monkeypatch):
    monkeypatch.setattr(parent, "kills_for_memory", lambda: None)
    before = MemoryBefore(available=1000, kills=None)
    assert before.was_exhausted_by(Exit(-9, peak=900))
    assert not before.was_exhausted_by(Exit(-9, peak=500))


def test_the_systems_count_of_kills_is_read(tmp_path):
    (tmp_path / "vmstat").write_text("nr_free_pages 12\noom_kill 3\n")
    assert kills_for_memory(tmp_path / "vmstat") == 3
    (tmp_path / "vmstat").write_text("nr_free_pages 12\n")
    assert kills_for_memory(tmp_path / "vmstat") is None
    assert kills_for_memory(tmp_path / "nothing") is None


def test_processes_that_a_child_leaves_behind_are_ended():
    found = run(
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        'tell(environment={"pid": left.pid}); tell(status="ok", reason=None)'
    )
    assert found.status == "ok"
    assert gone(found.environment["pid"])


def test_interrupting_ends_the_child_and_keeps_what_was_found():
    def interrupt(step: str) -> None:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.raises(InterruptedJob) as caught:
        run('tell(environment={"pid": os.getpid()});' + LATENCY + "time.sleep(600)", on_step=interrupt)
    found = caught.value.findings
    assert (found.status, found.reason) == ("failed", "latency: interrupted")
    assert "latency_p50" in found.metrics
    assert gone(found.environment["pid"])


SAVES = """
def save(*_):
    tell(note="saved"); tell(status="failed", reason="interrupted"); sys.exit(0)
signal.signal(signal.SIGTERM, save)
tell(environment={"pid": os.getpid()}); tell(step="training")
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_saves_itself_is_given_the_time_to_do_so(number):
    notes = []

    def stop(step: str) -> None:
        threading.Timer(0.2, os.kill, (os.getpid(), number)).start()

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(InterruptedJob) as caught:
        run(SAVES, saves_itself=True, on_step=stop, on_note=notes.append)
    assert caught.value.signal == number
    assert notes == ["saved"]
    assert gone(caught.value.findings.environment["pid"])
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_worker_that_dies_of_a_signal_to_the_whole_job_has_not_failed():
    def stop(step: str) -> None:
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()

    dies = 'tell(environment={"pid": os.getpid()}); tell(step="imports"); os.kill(os.getpid(), signal.SIGTERM)'
    with pytest.raises(InterruptedJob) as caught:
        run(dies, saves_itself=True, on_step=stop)
    assert caught.value.signal == signal.SIGTERM
    assert gone(caught.value.findings.environment["pid"])
    found = run(dies, saves_itself=True)
    assert (found.status, found.reason) == ("failed", "imports: killed by SIGTERM")


def test_progress_is_told_and_leaves_the_step_as_it_is():
    steps = []
    found = run('tell(step="training"); tell(progress="epoch 1"); sys.exit(3)', on_step=steps.append)
    assert steps == ["training", "epoch 1"]
    assert found.reason == "training: ended with exit code 3"


def test_a_request_that_the_worker_refuses_is_a_wrong_request():
    with pytest.raises(RequestError, match="^no such data$"):
        run('tell(refused="no such data")')


@pytest.mark.parametrize("module", ["favor.measurement.worker", "favor.training.worker"])
def test_every_worker_ends_when_the_one_that_started_it_is_gone(module, tmp_path):
    script = (
        "import sys, time, runpy\n"
        "from favor.machine import worker\n"
        "worker.answer = lambda work, request, channel: (print('at work', flush=True), time.sleep(60))\n"
        f"sys.argv = ['worker', '2']; runpy.run_module('{module}', run_name='__main__')\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    started.stdin.write(b"{}\n")
    started.stdin.flush()
    assert started.stdout.readline() == b"at work\n"
    started.stdin.close()
    # a measurement ends at once, a training gets the signal on which it saves a checkpoint
    assert started.wait(timeout=20) == (1 if module == "favor.measurement.worker" else -signal.SIGTERM)


def test_waiting_uses_no_processor_time():
    before = resource.getrusage(resource.RUSAGE_SELF)
    run("time.sleep(1.5); tell(status='ok', reason=None)")
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.2


def test_no_file_descriptor_and_no_process_is_left():
    before = psutil.Process().num_fds()
    for _ in range(3):
        run("tell(status='ok', reason=None)")
    assert psutil.Process().num_fds() == before
    assert not [left for left in psutil.Process().children() if left.status() == psutil.STATUS_ZOMBIE]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt its orphans")
def test_a_process_that_leaves_the_group_of_the_worker_ends_with_it(tmp_path):
    file = tmp_path / "pid"
    script = f"""
stray = subprocess.Popen(["sleep", "60"], start_new_session=True)
open({str(file)!r}, "w").write(str(stray.pid))
"""
    assert run(script + 'tell(status="ok", reason=None)').status == "ok"
    assert gone(int(file.read_text()))


def test_a_worker_that_does_not_save_itself_in_time_is_killed(monkeypatch):
    monkeypatch.setattr(parent, "STOP_SECONDS", 0.5)
    threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    start = time.monotonic()
    with pytest.raises(InterruptedJob):
        run("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)", saves_itself=True)
    assert time.monotonic() - start < 30


TURNS = """
tell(step="waiting for its turn")
speed = float(json.loads(request)["speed"])
while sys.stdin.read(1) == "+":
    tell(round={"throughput": speed, "latency": time.monotonic(), "others": 0.0})
tell(environment={"done": True})
tell(status="ok", reason=None)
"""


def in_turns(script, speeds, rounds, time_limit=30.0):
    requests = [f'{{"speed": {speed}}}' for speed in speeds]
    asked = []

    def rounds_have_ended(everyone):
        asked.append(tuple(len(findings.rounds) for findings in everyone))
        return len(asked) > rounds

    found = supervise_in_turns(child(script), requests, time_limit=time_limit, rounds_have_ended=rounds_have_ended)
    return found, asked


def test_workers_take_turns_and_end_after_the_last_round():
    found, asked = in_turns(TURNS, [1.0, 2.0], rounds=3)
    assert asked == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert [[entry.throughput for entry in findings.rounds] for findings in found] == [[1.0] * 3, [2.0] * 3]
    times = [entry.latency for pair in zip(*(findings.rounds for findings in found), strict=True) for entry in pair]
    assert times == sorted(times)
    assert [(findings.status, findings.environment) for findings in found] == [("ok", {"done": True})] * 2


def test_a_worker_that_crashes_in_its_turn_drops_out_and_the_others_go_on():
    crashing = TURNS.replace("    tell(round", '    if speed == 1.0: sys.exit("no more")\n    tell(round')
    found, _ = in_turns(crashing, [1.0, 2.0, 3.0], rounds=2)
    assert [findings.status for findings in found] == ["failed", "ok", "ok"]
    assert found[0].reason == "waiting for its turn: ended with exit code 1; last line of stderr: no more"
    assert [len(findings.rounds) for findings in found] == [0, 2, 2]


def test_the_rounds_end_with_the_workers_that_take_part_in_them():
    dying = TURNS.replace("    tell(round", "    os.kill(os.getpid(), signal.SIGKILL)\n    tell(round")
    asked = []

    def rounds_have_ended(running):
        asked.append(len(running))
        return not running

    requests = ['{"speed": 1.0}'] * 2
    supervise_in_turns(child(dying), requests, time_limit=30.0, rounds_have_ended=rounds_have_ended)
    assert asked == [2, 0]


def test_a_worker_that_hangs_in_its_turn_is_ended_with_all_that_take_turns():
    hanging = TURNS.replace("    tell(round", "    if speed == 2.0: time.sleep(60)\n    tell(round")
    start = time.monotonic()
    found, _ = in_turns(hanging, [1.0, 2.0], rounds=2, time_limit=3.0)
    assert time.monotonic() - start < 20
    assert [findings.status for findings in found] == ["timeout", "timeout"]


def test_a_round_that_is_malformed_ends_the_worker():
    found, _ = in_turns(TURNS.replace('"throughput": speed', '"throughput": 0.0'), [1.0], rounds=2)
    assert found[0].status == "failed"
    assert "malformed message" in found[0].reason


def test_a_worker_outlives_the_signal_that_slurm_sends_to_all_processes_of_a_job() -> None:
    script = (
        "import json, os, signal, sys; os.kill(os.getpid(), signal.SIGUSR2); "
        "os.write(int(sys.argv[1]), json.dumps({'status': 'ok', 'reason': None}).encode() + bytes([10]))"
    )
    assert supervise((sys.executable, "-c", script), "{}").status == "ok"
    assert signal.SIGUSR2 not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
