"""Jobs done one after the other: kept as they come, stopped and gone on with."""

import shutil

import pytest

from favor.errors import RequestError, WorkError
from favor.measurement.measure import Interrupted
from favor.records.store import read
from favor.study import runner
from favor.study.estimate import Forecast, work_from
from favor.study.folder import save_requests
from favor.study.plan import jobs_of
from favor.study.progress import jobs_to_do, records_of, states_of
from favor.study.runner import Keeper, UnwrittenError, run_jobs
from favor.study.schema import Budget
from study.made_up import MACHINE, FakeClock, a_record, a_study

STUDY = a_study(phases=("inference", "training"), budget=Budget(measurement="3 s"))
JOBS = jobs_of(STUDY)


class FakeExecutor:
    """Finds something for every job in ten seconds; some fail, one is interrupted, and one kills everything."""

    def __init__(self, clock, failing=(), interrupted=None, killed=None, seconds=10.0):
        self.clock, self.failing, self.interrupted, self.killed = clock, failing, interrupted, killed
        self.seconds = seconds
        self.asked = []

    def execute(self, job, budget, on_step, on_note):
        self.asked.append((job, budget))
        on_step("working")
        self.clock.sleep(self.seconds)
        if job == self.killed:
            raise SystemError("killed")
        if job == self.interrupted:
            raise Interrupted(a_record(job, status="failed", reason="throughput: interrupted"))
        if job in self.failing:
            return (a_record(job, metrics={}, status="failed", reason="building: no"),)
        return (a_record(job),)


class Told:
    def __init__(self):
        self.lines = []

    def begins(self, job):
        self.lines.append(f"begins {job}")

    def at_step(self, job, step):
        self.lines.append(f"{step} {job}")

    def note(self, text):
        self.lines.append(text)

    def ended(self, job, records, seconds):
        self.lines.append(f"ended {job} after {seconds:g} s")


def go(folder, executor, total=None, repeat=None):
    save_requests(folder, [STUDY])
    states = states_of(JOBS, records_of(folder), MACHINE)
    jobs = jobs_to_do(states, repeat)
    told = Told()
    forecast = Forecast(jobs, executor.clock, work_from(()), total=total)
    return run_jobs(jobs, Keeper(folder), executor, forecast, told), told


def test_every_job_is_done_in_its_order_told_and_kept_at_once(tmp_path):
    executor = FakeExecutor(FakeClock())
    result, told = go(tmp_path, executor)
    assert [job for job, _ in executor.asked] == list(JOBS) == list(result.done)
    assert told.lines[:3] == [f"begins {JOBS[0]}", f"working {JOBS[0]}", f"ended {JOBS[0]} after 10 s"]
    assert [(record.name, record.task) for record in read(tmp_path).records] == [(job.name, job.phase) for job in JOBS]


@pytest.mark.parametrize("at", range(0, 12, 3))
def test_killed_at_any_job_the_next_run_repeats_nothing_that_is_recorded(tmp_path, at):
    first = FakeExecutor(FakeClock(), killed=JOBS[at])
    with pytest.raises(SystemError):
        go(tmp_path, first)
    second = FakeExecutor(FakeClock())
    go(tmp_path, second)
    assert [job for job, _ in second.asked] == list(JOBS[at:])
    third = FakeExecutor(FakeClock())
    go(tmp_path, third)
    assert third.asked == []


def test_a_torn_last_line_is_done_again(tmp_path):
    go(tmp_path, FakeExecutor(FakeClock()))
    file = tmp_path / "records.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    again = FakeExecutor(FakeClock())
    go(tmp_path, again)
    assert [job for job, _ in again.asked] == [JOBS[-1]]


def test_a_failure_is_a_record_the_run_goes_on_and_only_retry_tries_it_again(tmp_path):
    result, _ = go(tmp_path, FakeExecutor(FakeClock(), failing=JOBS[2:4]))
    assert len(result.done) == len(JOBS)
    without = FakeExecutor(FakeClock())
    go(tmp_path, without)
    assert without.asked == []
    again = FakeExecutor(FakeClock())
    go(tmp_path, again, repeat="failed")
    assert [job for job, _ in again.asked] == list(JOBS[2:4])
    assert {state.status for state in states_of(JOBS, records_of(tmp_path), MACHINE)} == {"done"}


def test_ctrl_c_keeps_what_was_found_and_the_job_is_done_again(tmp_path):
    with pytest.raises(Interrupted):
        go(tmp_path, FakeExecutor(FakeClock(), interrupted=JOBS[1]))
    assert [record.status for record in read(tmp_path).records] == ["ok", "failed"]
    again = FakeExecutor(FakeClock())
    go(tmp_path, again)
    assert [job for job, _ in again.asked] == list(JOBS[1:])


def test_when_the_time_of_the_whole_has_run_out_the_rest_is_named_and_left(tmp_path):
    clock = FakeClock()
    result, _ = go(tmp_path, FakeExecutor(clock, seconds=20.0), total=90.0)
    assert 0 < len(result.done) < len(JOBS)
    assert (*result.done, *result.out_of_time) == JOBS
    states = states_of(JOBS, records_of(tmp_path), MACHINE)
    assert jobs_to_do(states, None) == result.out_of_time


def test_a_request_that_is_refused_is_told_not_recorded_and_the_next_one_goes_on(tmp_path):
    class Refusing(FakeExecutor):
        def execute(self, job, budget, on_step, on_note):
            if job == JOBS[0]:
                raise RequestError("it was begun already")
            return super().execute(job, budget, on_step, on_note)

    result, _ = go(tmp_path, Refusing(FakeClock()))
    assert [str(refusal) for refusal in result.refused] == ["it was begun already"]
    assert len(read(tmp_path).records) == len(JOBS) - 1


def test_a_folder_that_is_deleted_meanwhile_is_not_made_again(tmp_path):
    folder = tmp_path / "study"

    class Deleting(FakeExecutor):
        def execute(self, job, budget, on_step, on_note):
            shutil.rmtree(folder)
            return super().execute(job, budget, on_step, on_note)

    with pytest.raises(UnwrittenError, match="study was deleted or moved while favor was working in it"):
        go(folder, Deleting(FakeClock()))
    assert not folder.exists()


def test_after_a_disk_that_was_full_in_the_middle_no_record_is_written_twice(tmp_path, monkeypatch):
    study = a_study(phases=("inference",))
    save_requests(tmp_path, [study])
    records = [a_record(job) for job in jobs_of(study)[:2]]
    written, real = [], runner.append

    def full_at_the_second(folder, some, writer):
        if len(written) == 1:
            written.append(None)
            raise WorkError("No space left on device")
        written.append(some)
        real(folder, some)

    monkeypatch.setattr(runner, "append", full_at_the_second)
    keeper = Keeper(tmp_path)
    with pytest.raises(UnwrittenError):
        keeper.keep(records)
    keeper.retry()
    assert [record.name for record in records_of(tmp_path)] == [record.name for record in records]


def test_a_record_is_kept_even_if_showing_it_fails(tmp_path):
    class Unseen(Told):
        def ended(self, job, records, seconds):
            raise BrokenPipeError

    save_requests(tmp_path, [STUDY])
    clock = FakeClock()
    forecast = Forecast(JOBS, clock, work_from(()))
    with pytest.raises(BrokenPipeError):
        run_jobs(JOBS, Keeper(tmp_path), FakeExecutor(clock), forecast, Unseen())
    assert [record.name for record in read(tmp_path).records] == [JOBS[0].name]
