"""The forecast of a study's time, on a clock that the tests turn."""

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from favor.measurement.job import MeasureJob
from favor.records.schema import CardFields, Record
from favor.study.estimate import (
    LEAST_BUDGET,
    MACS_PER_SECOND_ELSEWHERE,
    PAGE_SECONDS,
    START_SECONDS,
    Forecast,
    forecast_of,
    observed_before,
    work_from,
)
from favor.study.plan import jobs_of
from favor.study.progress import states_of
from favor.study.schema import Budget, Stage, Train
from favor.study.study_files import open_study
from favor.study.train_jobs import TrainJob, stage_conditions
from study.made_up import ENVIRONMENT, MACHINE, FakeClock, a_record, a_study

QUICK, FULL = (open_study(name)[0] for name in ("quick", "full"))
HOUR = Budget(measurement="5 s")


class Computer:
    """A machine that is made up: its start-up, its speed, and how unlike two models of equal work are."""

    def __init__(self, start: float, macs_per_second: float, spread: float, seed: int = 0) -> None:
        self.start, self.macs_per_second, self.spread = start, macs_per_second, spread
        self.random = random.Random(seed)  # noqa: S311 - noise
        self.work_of = work_from(())

    def seconds(self, job, budget: float) -> float:
        """The timings end by the budget or when they are sure; the passes besides them take what they take."""
        image = self.work_of(job) / self.macs_per_second * self.random.uniform(1 / self.spread, self.spread)
        if job.phase == "inference":
            return self.start + 1.2 * budget + min(3.0, budget) + budget * 1.1 + 35 * image
        return self.start + max(1.25 * budget, 72 * image) + 1.25 * min(budget, 3.0) + 50 * image

    def record(self, job, budget: float):
        speed = self.macs_per_second / self.work_of(job)
        metrics = {"throughput": speed} if job.phase == "inference" else {"train_throughput": speed / 3}
        return a_record(job, metrics=metrics)


def run(jobs, total, computer, clock):
    """Let a study run; the forecasts by the time they were made, the jobs that were done, and the end."""
    forecast = Forecast(jobs, clock, computer.work_of, total=total)
    told, done, budgets = [(clock.now(), forecast.seconds_left())], [], []
    for job in jobs:
        its_budget = forecast.budget_for(job)
        if its_budget is None:
            break
        forecast.begin(job, its_budget)
        clock.sleep(computer.seconds(job, its_budget))
        forecast.end([computer.record(job, its_budget)])
        told.append((clock.now(), forecast.seconds_left()))
        done.append(job)
        budgets.append(its_budget)
    clock.sleep(PAGE_SECONDS)
    return told, done, budgets


def test_the_first_look_leaves_time_for_a_second_one_and_does_all_jobs_first():
    jobs = jobs_of_file(QUICK, ("inference",), QUICK.budget)
    total = QUICK.budget.total

    def looked_once(macs_per_second):
        clock = FakeClock()
        computer = Computer(4.5, macs_per_second, 1.4)
        forecast = Forecast(jobs, clock, computer.work_of, total=total, second_look=True)
        done = 0
        for job in jobs:
            budget = forecast.budget_for(job)
            if budget is None:
                break
            forecast.begin(job, budget)
            clock.sleep(computer.seconds(job, budget))
            forecast.end([computer.record(job, budget)])
            done += 1
        return done, forecast.available(), forecast

    done, left, forecast = looked_once(5e10)
    assert (done, left > 60) == (len(jobs), True)
    assert forecast.seconds_left() <= left + PAGE_SECONDS
    done, left, _ = looked_once(1.8e10)
    assert done == len(jobs)
    assert left < 60


def test_one_job_that_other_programs_slowed_down_does_not_keep_the_others_from_being_done():
    clock, jobs = FakeClock(), jobs_of_file(QUICK, ("inference",), QUICK.budget)
    forecast = Forecast(jobs, clock, work_from(()), total=360.0)
    forecast.begin(jobs[0], 1.0)
    clock.sleep(200.0)
    slow = a_record(jobs[0], metrics={"throughput": 0.1}, environment={**ENVIRONMENT, "flags": "busy"})
    forecast.end([slow])
    assert forecast.budget_for(jobs[1]) == LEAST_BUDGET
    undisturbed = Forecast(jobs, clock, work_from(()), total=360.0)
    undisturbed.begin(jobs[0], 1.0)
    clock.sleep(200.0)
    undisturbed.end([a_record(jobs[0], metrics={"throughput": 0.1})])
    assert undisturbed.budget_for(jobs[1]) is None


def jobs_of_file(study, phases, budget=HOUR):
    planned = jobs_of(a_study(names=study.models, phases=phases, budget=budget))
    return [job for job in planned if isinstance(job, MeasureJob)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("start", [2.0, 5.0, 15.0])
@pytest.mark.parametrize("macs_per_second", [5e9, 2e10, 5e10, 3e11])
@pytest.mark.parametrize("study", ["quick", "full"])
def test_the_time_left_is_honest_within_30_percent_from_early_on(study, macs_per_second, start, seed):
    jobs = jobs_of_file(QUICK, ("inference",)) if study == "quick" else jobs_of_file(FULL, ("inference",))
    clock = FakeClock()
    told, _, _ = run(jobs, None, Computer(start, macs_per_second, 1.5, seed), clock)
    end, began = clock.now(), told[0][0]
    early = began + 0.15 * (end - began)
    # At the very end 30 % are a few seconds: less than a job is no error to speak of.
    off = [abs(left - (end - at)) / max(end - at, 20.0) for at, left in told if at >= early]
    assert max(off) <= 0.30


@pytest.mark.parametrize(
    ("start", "macs_per_second"), [(2.0, 2e10), (2.0, 3e11), (4.5, 5e10), (4.5, 3e11), (8.0, 5e10), (8.0, 3e11)]
)
def test_quick_keeps_its_time_on_machines_of_all_kinds_and_does_all_it_can(start, macs_per_second):
    clock = FakeClock()
    jobs = jobs_of_file(QUICK, ("inference",), QUICK.budget)
    began = clock.now()
    told, done, budgets = run(jobs, QUICK.budget.total, Computer(start, macs_per_second, 1.4), clock)
    assert clock.now() - began <= 360
    assert len(done) == len(jobs)
    assert all(LEAST_BUDGET <= budget <= QUICK.budget.measurement for budget in budgets)
    off = [abs(left - (clock.now() - at)) / max(clock.now() - at, 20.0) for at, left in told[2:]]
    assert max(off) <= 0.30


def test_where_the_whole_is_too_short_the_run_ends_in_time_with_the_first_jobs_done():
    clock = FakeClock()
    jobs = jobs_of_file(QUICK, ("inference",), QUICK.budget)
    began = clock.now()
    _, done, budgets = run(jobs, QUICK.budget.total, Computer(30.0, 5e9, 1.2), clock)
    assert 0 < len(done) < len(jobs)
    assert done == jobs[: len(done)]
    assert budgets[-1] == LEAST_BUDGET
    assert clock.now() - began <= 360


def test_without_a_budget_for_the_whole_each_measurement_gets_its_own():
    jobs = jobs_of_file(QUICK, ("inference",))
    assert Forecast(jobs, FakeClock(), work_from(())).budget_for(jobs[0]) == 5.0


def test_the_time_left_runs_down_while_a_job_runs():
    clock, jobs = FakeClock(), jobs_of_file(QUICK, ("inference",))
    forecast = Forecast(jobs, clock, work_from(()))
    before = forecast.seconds_left()
    forecast.begin(jobs[0], 5.0)
    assert forecast.seconds_left() == pytest.approx(before)
    clock.sleep(4.0)
    assert forecast.seconds_left() == pytest.approx(before - 4.0)


def test_minutes_of_training_are_foreseen_as_what_they_are():
    train = Train(recipe="laptop-cifar10", data="cifar10", minutes=5)
    jobs = [TrainJob(name, 0, train, "cpu", 2, ()) for name in ("vit_ti16", "vit_s16")]
    assert Forecast(jobs, FakeClock(), work_from(()), page=False).seconds_left() == pytest.approx(600, rel=0.05)


def test_epochs_of_training_are_foreseen_from_the_multiply_adds_and_the_images():
    light, heavy = (
        Forecast([TrainJob(name, 0, train, "cpu", 2, ())], FakeClock(), work_from(()), page=False).seconds_left()
        for name, train in (
            ("vit_ti16", Train(recipe="laptop-cifar10", data="cifar10", epochs=1)),
            ("vit_ti16", Train(recipe="laptop-cifar10", data="cifar10", epochs=3)),
        )
    )
    assert heavy - START_SECONDS == pytest.approx(3 * (light - START_SECONDS))


def seconds_of(train: Train, device: str = "cuda") -> float:
    jobs = [TrainJob("vit_s16", 0, train, device, 2, ())]
    return Forecast(jobs, FakeClock(), work_from(()), device=device, page=False).seconds_left()


def test_the_forecast_of_a_training_knows_its_devices_its_image_sizes_and_its_evaluations():
    train = Train(recipe="deit3-pretrain", data="imagenet-1k", epochs=10)
    once = seconds_of(train)
    assert seconds_of(train.model_copy(update={"processes": 8})) == pytest.approx(once / 8, rel=1e-3)
    assert seconds_of(train.model_copy(update={"processes": 8}), "cpu") == pytest.approx(seconds_of(train, "cpu"))
    # An epoch is 1,281,167 images in forward and backward passes, and 50,000 in a forward pass.
    macs = work_from(())(TrainJob("vit_s16", 0, train, "cuda", 2, ()))
    assert once == pytest.approx(10 * (3 * 1_281_167 + 50_000) * macs / MACS_PER_SECOND_ELSEWHERE, rel=1e-3)
    larger = Stage(recipe="deit3-pretrain", data="imagenet-1k", epochs=10, set=("img_size=448",))
    assert seconds_of(train.model_copy(update={"finetune": (larger,)})) == pytest.approx(5 * once, rel=1e-3)
    assert seconds_of(train.model_copy(update={"data": "imagenet-21k"})) > 5 * once


def test_a_resumed_study_learns_from_the_clocks_of_its_training_runs():
    train = Train(recipe="laptop-cifar10", data="cifar10")
    jobs = [TrainJob("vit_ti16", seed, train, "cpu", 2, ()) for seed in range(8)]
    modeled = Forecast(jobs[:1], FakeClock(), work_from(()), page=False).seconds_left() - START_SECONDS
    records = [
        Record(
            *("vit_ti16", CardFields(), "accuracy", "measured"),
            {"dataset": "cifar10", "final": True, **stage_conditions(train, job.seed, job.name)},
            environment={"program_seconds": 3 * modeled, **ENVIRONMENT},
        )
        for job in jobs[:4]
    ]
    study = a_study(train=train, phases=("accuracy",))

    def left_after(records: list[Record]) -> float:
        return forecast_of([study], jobs[4:], states_of(jobs, records, MACHINE), FakeClock(), 0.0).seconds_left()

    assert left_after(records) == pytest.approx(4 * 3 * modeled, rel=0.3)
    of_a_gpu = [replace(record, environment={**record.environment, "device_name": "a GPU"}) for record in records]
    assert left_after(of_a_gpu) == pytest.approx(4 * modeled, rel=0.3)


def test_the_images_of_a_folder_are_counted_and_their_size_tells_the_work(tmp_path: Path):
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        for number in range(50):
            (tmp_path / name / f"{number}.JPG").touch()
        (tmp_path / name / ".DS_Store").touch()
    few, large = (
        Forecast(
            [TrainJob("vit_ti16", 0, Train(recipe="transfer", data=f"folder:{tmp_path}", set=sizes), "cpu", 2, ())],
            FakeClock(),
            work_from(()),
            page=False,
        ).seconds_left()
        - START_SECONDS
        for sizes in ((), ("img_size=448",))
    )
    assert 10 < few < 1000  # 20 epochs of 80 images at 1.3 G multiply-adds
    assert large == pytest.approx(4 * few)


def test_multiply_adds_grow_with_the_image_and_what_was_never_counted_is_taken_for_usual():
    work_of = work_from(())
    small, large = (MeasureJob("vit_s16", "inference", size, "fp32", "cpu", "cpu", 2) for size in (224, 448))
    assert work_of(large) == 4 * work_of(small)
    mine, its_thumbnail, with_settings, without = (
        work_of(MeasureJob(name, "inference", size, "fp32", "cpu", "cpu", 2))
        for name, size in (("mine", 224), ("mine", 32), ("linformer_xs4(k=8)", 32), ("linformer_xs4", 32))
    )
    assert mine == 49 * its_thumbnail > 0
    assert with_settings == without < 1e8


def test_a_resumed_study_learns_from_what_it_did_before_and_not_from_the_pause():
    jobs = jobs_of_file(QUICK, ("inference",))
    times = ["2026-11-16T01:00:00Z", "2026-11-16T01:00:40Z", "2026-11-16T09:00:00Z"]
    records = [a_record(job, time) for job, time in zip(jobs, times, strict=False)]
    observed = observed_before(states_of(jobs, records, MACHINE), [MACHINE])
    assert [(found.job, found.budget, found.seconds) for found, _ in observed] == [(jobs[0], 3.0, 40.0)]


def test_models_that_took_turns_tell_nothing_about_the_time_of_a_job():
    jobs = jobs_of_file(QUICK, ("inference",))
    times = ["2026-11-16T01:00:00Z", "2026-11-16T01:00:40Z", "2026-11-16T01:00:40Z", "2026-11-16T01:05:00Z"]
    in_turns = {**ENVIRONMENT, "stretch": "2026-11-16T01:00:40Z 1a2b3c4d"}
    environments = [ENVIRONMENT, in_turns, in_turns, ENVIRONMENT]
    records = [
        a_record(job, time, environment=environment)
        for job, time, environment in zip(jobs, times, environments, strict=False)
    ]
    observed = observed_before(states_of(jobs, records, MACHINE), [MACHINE])
    assert [(found.job, found.seconds) for found, _ in observed] == [(jobs[0], 40.0)]


def test_waiting_for_another_process_does_not_use_up_the_total_budget():
    clock, jobs = FakeClock(), jobs_of_file(QUICK, ("inference",), QUICK.budget)
    forecast = Forecast(jobs, clock, work_from(()), total=QUICK.budget.total)
    budget, left = forecast.budget_for(jobs[0]), forecast.seconds_left()
    clock.sleep(3600.0)
    assert forecast.budget_for(jobs[0]) is None
    forecast.postpone(3600.0)
    assert (forecast.budget_for(jobs[0]), forecast.seconds_left()) == (budget, left)
