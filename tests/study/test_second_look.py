"""Which models get a second look, head to head, and which measurements are repeated; on a clock that tests turn."""

import pandas as pd
import pytest

from favor.records import counted_table, published_table
from favor.records.store import read
from favor.records.table import table_of
from favor.study import second_look
from favor.study.contenders import accurate_enough, contenders
from favor.study.estimate import Forecast, work_from
from favor.study.folder import save_requests
from favor.study.plan import jobs_of
from favor.study.quiet_machine import LONGEST_WAIT, QuietMachine
from favor.study.resolved import PlannedModel
from favor.study.runner import Keeper, run_jobs
from favor.study.schema import Budget, Report
from favor.study.second_look import SecondLook
from study.made_up import ENVIRONMENT, FakeClock, a_record, a_study
from study.test_runner import FakeExecutor, Told

STUDY = a_study(phases=("inference",), budget=Budget(measurement="3 s"), report=Report(min_accuracy=80, page=False))
JOBS = {job.name: job for job in jobs_of(STUDY)}
# vit_ti16 and efficientformerv2_s0 have less than 80 %.
SPEEDS = {
    "vit_s16": 12.0,
    "swin_ti": 12.8,
    "cvt_13": 13.0,
    "wavevit_s": 6.0,
    "vit_ti16": 40.0,
    "efficientformerv2_s0": 50.0,
}
BUSY = {**ENVIRONMENT, "flags": "busy", "others_during": 1.2}


def measured(name, throughput=None, **changes):
    speed = SPEEDS[name] if throughput is None else throughput
    return a_record(JOBS[name], metrics={"throughput": speed, "latency_p50": 1.1 / speed}, **changes)


def of(records, doubtful=()):
    table = pd.concat([published_table(), counted_table(), table_of(records)], ignore_index=True)
    return [name for name, _ in contenders(STUDY, table, [(name, 224) for name in doubtful])]


def test_contenders_are_accurate_enough_and_near_the_fastest():
    assert of([measured(name) for name in SPEEDS]) == ["cvt_13", "swin_ti", "vit_s16"]
    assert of([measured(name, 20.0 if name == "cvt_13" else None) for name in SPEEDS]) == ["cvt_13"]


def test_every_model_can_win_where_no_accuracy_is_known():
    table = table_of([measured(name) for name in SPEEDS])
    assert accurate_enough(STUDY, table) == {model.name for model in STUDY.models}


def test_a_doubtful_model_can_always_win_and_beats_nobody():
    everyone = [measured(name) for name in SPEEDS]
    assert of(everyone, ["wavevit_s"]) == ["cvt_13", "swin_ti", "vit_s16", "wavevit_s"]
    lucky = [measured(name, 99.0 if name == "wavevit_s" else None) for name in SPEEDS]
    assert of(lucky, ["wavevit_s"]) == ["wavevit_s", "cvt_13", "swin_ti", "vit_s16"]
    assert of(everyone, list(SPEEDS)) == ["cvt_13", "swin_ti", "vit_s16", "wavevit_s"]


def test_a_doubtful_measurement_at_another_image_size_is_of_no_concern():
    table = table_of([measured(name) for name in SPEEDS])
    assert contenders(STUDY, table, [("wavevit_s", 384)]) == contenders(STUDY, table)


class Look:
    """A second look after the records of a first one, with head-to-head stretches and a load that are made up."""

    def __init__(self, folder, monkeypatch, records, left=200.0, load=lambda now: 0.0, stretch=measured, study=STUDY):
        save_requests(folder, [study])
        self.study = study
        self.clock, self.folder, self.told, self.stretches = FakeClock(), folder, Told(), []
        self.keeper = Keeper(folder)
        self.keeper.keep(records)
        self.executor = FakeExecutor(self.clock)
        self.forecast = Forecast([], self.clock, work_from(()), total=left, page=False)
        self.stretch, self.start, self.load = stretch, self.clock.now(), load
        monkeypatch.setattr(second_look, "measure_head_to_head", self.head_to_head)

    def look(self, seconds):
        self.clock.sleep(seconds)
        return self.load(self.clock.now() - self.start)

    def head_to_head(self, jobs, seconds, clock, processors, on_step, exporting):
        self.stretches.append(([job.name for job in jobs], seconds, self.clock.now() - self.start))
        self.clock.sleep(seconds + 10 * len(jobs))
        return tuple(self.stretch(job.name) for job in jobs)

    def run(self, free_memory=10**11):
        self.looking(free_memory).run()
        return self

    def looking(self, free_memory=10**11):
        return SecondLook(
            study=self.study,
            folder=self.folder,
            keeper=self.keeper,
            executor=self.executor,
            forecast=self.forecast,
            watcher=self.told,
            quiet=QuietMachine(self.look, 2, self.clock),
            clock=self.clock,
            processors=2,
            free_memory=free_memory,
        )

    @property
    def repeated(self):
        return [job.name for job, _ in self.executor.asked]


def first_look(folder, monkeypatch, load, **options):
    """The names of the models in the order in which they are measured, and the seconds."""
    look = Look(folder, monkeypatch, [], left=options.pop("left", 1000.0), load=load)
    forecast = Forecast(list(JOBS.values()), look.clock, work_from(()), total=1000.0, page=False)
    look.forecast = forecast
    second = look.looking()

    class Disturbed(FakeExecutor):
        def execute(self, job, budget, on_step, on_note):
            began = self.clock.now() - look.start
            super().execute(job, budget, on_step, on_note)
            is_busy = load(began) > 0.2 or load(self.clock.now() - look.start) > 0.2
            return (measured(job.name, environment=BUSY if is_busy else None),)

    executor = Disturbed(look.clock)
    run_jobs(tuple(JOBS.values()), look.keeper, executor, forecast, look.told, second.choose, second.has_to_repeat)
    return [job.name for job, _ in executor.asked], look.clock.now() - look.start


def test_models_that_can_be_favored_are_measured_first(tmp_path, monkeypatch):
    names, _ = first_look(tmp_path, monkeypatch, lambda now: 0.0)
    assert names == ["vit_s16", "swin_ti", "cvt_13", "wavevit_s", "vit_ti16", "efficientformerv2_s0"]


def test_a_measurement_waits_for_a_quiet_machine_and_a_disturbed_one_that_decides_is_repeated_at_once(
    tmp_path, monkeypatch
):
    names, seconds = first_look(tmp_path, monkeypatch, lambda now: 1.0 if 15 < now < 45 else 0.0)
    # The second measurement is disturbed in its middle; it comes again after the others that can decide.
    decisive = ["vit_s16", "swin_ti", "cvt_13", "wavevit_s", "swin_ti"]
    assert names == [*decisive, "vit_ti16", "efficientformerv2_s0"]
    assert 90 < seconds < 105


def test_on_a_machine_that_is_always_busy_nothing_is_repeated_at_once(tmp_path, monkeypatch):
    names, seconds = first_look(tmp_path, monkeypatch, lambda now: 1.0)
    assert len(names) == len(set(names)) == len(SPEEDS)
    assert seconds == pytest.approx(LONGEST_WAIT + 10 * len(SPEEDS), abs=5)


def everyone(**environments):
    return [measured(name, environment=environments.get(name)) for name in SPEEDS]


def test_models_that_can_still_win_are_measured_head_to_head_within_the_time_left(tmp_path, monkeypatch):
    look = Look(tmp_path, monkeypatch, everyone()).run()
    [(names, seconds, _)] = look.stretches
    assert names == ["cvt_13", "swin_ti", "vit_s16"]
    assert 0 < seconds <= 200
    assert [record.name for record in read(tmp_path).records[-3:]] == names
    assert look.repeated == []


def test_with_little_time_the_slowest_contenders_are_left_out_and_with_none_all(tmp_path, monkeypatch):
    assert Look(tmp_path / "a", monkeypatch, everyone(), left=65.0).run().stretches[0][0] == ["cvt_13", "swin_ti"]
    assert Look(tmp_path / "b", monkeypatch, everyone(), left=20.0).run().stretches == []


def test_models_that_do_not_fit_into_memory_together_are_left_out(tmp_path, monkeypatch):
    records = [
        a_record(JOBS[name], metrics={"throughput": speed, "latency_p50": 1.1 / speed, "memory_process": 1e9})
        for name, speed in SPEEDS.items()
    ]
    look = Look(tmp_path, monkeypatch, records).run(free_memory=int(2.5e9))
    assert look.stretches[0][0] == ["cvt_13", "swin_ti"]


def test_a_clear_winner_needs_no_second_look(tmp_path, monkeypatch):
    records = [measured(name, 30.0 if name == "cvt_13" else None) for name in SPEEDS]
    assert Look(tmp_path, monkeypatch, records).run().stretches == []


def test_a_disturbed_stretch_replaces_only_what_was_doubtful_before(tmp_path, monkeypatch):
    disturbed = lambda name: measured(name, 1.0, environment=BUSY)  # noqa: E731
    look = Look(tmp_path, monkeypatch, everyone(swin_ti=BUSY), left=90.0, stretch=disturbed).run()
    assert [record.name for record in read(tmp_path).records[len(SPEEDS) :]] == ["swin_ti", *look.repeated]
    assert "head to head: 2 of 3 models were disturbed or failed" in look.told.lines


def test_a_disturbed_stretch_replaces_what_was_doubtful_at_the_same_image_size_only(tmp_path, monkeypatch):
    models = (PlannedModel(name="vit_s16", how="baseline", img_sizes=(224, 384)),)
    study = a_study(models=models, phases=("inference",), budget=Budget(measurement="3 s"))
    small, large = jobs_of(study)
    look = Look(tmp_path, monkeypatch, [a_record(small), a_record(large, environment=BUSY)], study=study)
    disturbed = lambda jobs, *_: tuple(a_record(job, environment=BUSY) for job in jobs)  # noqa: E731
    monkeypatch.setattr(second_look, "measure_head_to_head", disturbed)
    look.looking().head_to_head([small, large])
    assert [record.conditions["img_size"] for record in read(tmp_path).records] == [224, 384, 384]


def test_doubtful_measurements_are_repeated_once_those_that_can_win_first(tmp_path, monkeypatch):
    look = Look(tmp_path, monkeypatch, everyone(vit_ti16=BUSY, wavevit_s=BUSY), left=500.0)
    look.stretch = lambda name: measured(name, environment=BUSY if name == "wavevit_s" else None)
    assert look.run().repeated == ["wavevit_s", "vit_ti16"]


def test_contradictory_measurements_are_repeated(tmp_path, monkeypatch):
    records = [measured(name, 5.0 if name == "vit_ti16" else None) for name in SPEEDS]  # slower than vit_s16
    assert "vit_ti16" in Look(tmp_path, monkeypatch, records, left=500.0).run().repeated


def test_without_contenders_the_time_that_was_set_aside_is_for_repeating(tmp_path, monkeypatch):
    records = [
        measured(name, 30.0 if name == "cvt_13" else None, environment=BUSY if name == "vit_ti16" else None)
        for name in SPEEDS
    ]
    look = Look(tmp_path, monkeypatch, records)
    look.forecast = Forecast([], look.clock, work_from(()), total=20.0, page=False, second_look=True)
    look.run()
    assert look.stretches == []
    assert look.executor.asked == [(JOBS["vit_ti16"], 3.0)]


def test_without_time_nothing_is_repeated(tmp_path, monkeypatch):
    assert Look(tmp_path, monkeypatch, everyone(vit_ti16=BUSY), left=5.0).run().repeated == []


def test_while_other_programs_run_the_second_look_waits(tmp_path, monkeypatch):
    look = Look(tmp_path, monkeypatch, everyone(), left=200.0, load=lambda now: 1.0 if now < 40 else 0.0).run()
    assert 40 <= look.stretches[0][2] < 42


def test_on_a_machine_that_is_always_busy_doubtful_measurements_stay_and_it_is_said(tmp_path, monkeypatch):
    look = Look(tmp_path, monkeypatch, everyone(vit_ti16=BUSY), left=400.0, load=lambda now: 1.0)
    look.run()
    assert (look.stretches, look.repeated) == ([], [])
    assert "head to head: skipped, because other programs are still running" in look.told.lines
    assert "not repeated, because other programs are still running: 1 doubtful job" in look.told.lines


@pytest.mark.parametrize(("load_ends", "most", "waited", "is_quiet"), [(30, 99, 30, True), (30, 10, 10, False)])
def test_waiting_ends_when_the_machine_is_quiet_or_time_is_up(load_ends, most, waited, is_quiet):
    clock = FakeClock()
    start = clock.now()

    def look(seconds):
        clock.sleep(seconds)
        return 1.0 if clock.now() - start < load_ends else 0.1

    assert QuietMachine(look, 2, clock).wait(most) is is_quiet
    assert clock.now() - start == pytest.approx(waited, abs=1.0)


def test_after_a_wait_in_vain_nothing_waits_until_the_machine_was_quiet():
    clock, load = FakeClock(), [1.0]

    def look(seconds):
        clock.sleep(seconds)
        return load[0]

    machine = QuietMachine(look, 2, clock)

    def seconds_waited():
        start = clock.now()
        machine.wait(1e9)
        return clock.now() - start

    assert seconds_waited() == pytest.approx(LONGEST_WAIT, abs=1.0)
    assert seconds_waited() < 1
    load[0] = 0.0
    assert seconds_waited() < 1
    load[0] = 1.0
    assert seconds_waited() == pytest.approx(LONGEST_WAIT, abs=1.0)
