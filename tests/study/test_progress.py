"""What of a study is done, failed or left."""

from dataclasses import replace

import pytest
from msgspec import structs

from favor.records.schema import CardFields, Record, reading
from favor.study.plan import CountJob, jobs_of
from favor.study.progress import doubtful_measurements, jobs_to_do, states_of
from favor.study.schema import Stage, Train
from favor.study.train_jobs import TrainJob, stage_conditions
from study.made_up import ENVIRONMENT, MACHINE, a_record, a_study

JOBS = [job for job in jobs_of(a_study()) if job.phase == "inference"]


def state(job, *records):
    (found,) = states_of([job], records, MACHINE)
    return found.status, found.reason


def test_what_was_measured_here_is_done_and_what_was_not_is_left():
    states = states_of(JOBS, [a_record(JOBS[1])], MACHINE)
    assert [found.status for found in states] == ["left", "done", "left", "left", "left", "left"]


@pytest.mark.parametrize("key", ["device_name", "torch", "threads"])
def test_what_was_measured_on_another_machine_is_left(key):
    assert state(JOBS[0], a_record(JOBS[0], environment={**ENVIRONMENT, key: "another"})) == ("left", None)


@pytest.mark.parametrize(("key", "value"), [("img_size", 384), ("precision", "bf16"), ("batch", "given")])
def test_what_was_measured_otherwise_is_left(key, value):
    record = a_record(JOBS[0])
    other = Record(
        **{f: getattr(record, f) for f in Record.__slots__} | {"conditions": {**record.conditions, key: value}}
    )
    assert state(JOBS[0], record)[0] == "done"
    assert state(JOBS[0], other)[0] == "left"


@pytest.mark.parametrize(
    ("key", "value"), [("attention", "plain"), ("calibration", "folder:photos"), ("checkpoint", "runs/run")]
)
def test_what_was_measured_with_an_option_is_no_measurement_without_it(key, value):
    record = a_record(JOBS[0])
    other = structs.replace(record, conditions={**record.conditions, key: value})
    assert state(JOBS[0], other)[0] == "left"


def test_a_checkpoint_is_known_by_its_content_wherever_its_folder_is():
    def int8(path, content):
        return replace(JOBS[0], precision="int8", runtime="openvino", checkpoint=path, checkpoint_hash=content)

    measured = a_record(int8("/a/runs/run", "0123456789abcdef"))
    assert state(int8("/moved/run", "0123456789abcdef"), measured)[0] == "done"
    assert state(int8("/b/runs/run", "fedcba9876543210"), measured)[0] == "left"


def test_a_request_of_an_older_version_finds_its_records_by_the_path_of_the_checkpoint():
    older = replace(JOBS[0], precision="int8", runtime="openvino", checkpoint="/a/runs/run")
    assert older.conditions["checkpoint"] == "runs/run"
    assert state(older, a_record(older))[0] == "done"


def test_published_and_imported_figures_are_no_measurement_of_ours():
    record = a_record(JOBS[0])
    imported = Record(**{f: getattr(record, f) for f in Record.__slots__} | {"source": "imported"})
    assert state(JOBS[0], imported)[0] == "left"


def test_a_failure_has_its_reason_even_if_the_process_died_before_it_could_say_where():
    failed = a_record(JOBS[0], metrics={}, environment={}, status="failed", reason="start: ended with exit code 3")
    assert state(JOBS[0], failed) == ("failed", "failed: start: ended with exit code 3")


def test_success_counts_whatever_failed_before_or_after_it():
    failed = a_record(JOBS[0], "2026-11-16T02:00:00Z", status="timeout", reason="latency: not done after 9 s")
    assert state(JOBS[0], failed, a_record(JOBS[0]))[0] == "done"


def test_the_last_record_in_the_file_is_the_newest_even_if_the_clock_was_set_back():
    before, after = a_record(JOBS[0], "2026-11-16T02:00:00Z"), a_record(JOBS[0], "2026-11-16T01:00:00Z")
    (done,) = states_of(JOBS[:1], [before, after], MACHINE)
    assert done.record == after
    failures = [structs.replace(one, status="failed", reason=one.time) for one in (before, after)]
    assert state(JOBS[0], *failures) == ("failed", "failed: 2026-11-16T01:00:00Z")


def test_what_was_interrupted_is_left():
    stopped = a_record(JOBS[0], status="failed", reason="throughput: interrupted")
    assert state(JOBS[0], stopped) == ("left", None)


def test_counts_that_come_with_favor_are_done_and_others_are_left_until_counted():
    assert state(CountJob("vit_s16", 224, 1000))[0] == "done"
    job = CountJob("vit_s16", 384, 10)
    record = Record("vit_s16", CardFields(), "count", "measured", job.conditions)
    assert state(job)[0] == "left"
    assert state(job, record)[0] == "done"


@pytest.mark.parametrize(("repeat", "again"), [(None, []), ("failed", [0]), ("flagged", [1]), ("all", [0, 1, 2])])
def test_failed_flagged_or_all_jobs_are_repeated_after_those_that_are_left(repeat, again):
    failed = a_record(JOBS[0], status="failed", reason="building: no")
    flagged = a_record(JOBS[1], environment={**ENVIRONMENT, "flags": "busy latency:wide"})
    states = states_of(JOBS, [failed, flagged, a_record(JOBS[2])], MACHINE)
    assert jobs_to_do(states, repeat) == (*JOBS[3:], *(JOBS[place] for place in again))


def test_the_newest_record_is_the_last_of_the_file_whatever_the_clock_said():
    old = a_record(JOBS[0], "2026-11-16T02:00:00Z", environment={**ENVIRONMENT, "flags": "busy"})
    (found,) = states_of([JOBS[0]], [old, a_record(JOBS[0], "2026-11-16T01:00:00Z")], MACHINE)
    assert jobs_to_do([found], "flagged") == ()


def test_a_measurement_on_a_busy_machine_does_not_replace_a_quiet_one():
    quiet = a_record(JOBS[0])
    busy = a_record(JOBS[0], "2026-11-16T02:00:00Z", environment={**ENVIRONMENT, "flags": "busy"})
    for records in ([quiet, busy], [busy, quiet]):
        (found,) = states_of([JOBS[0]], records, MACHINE)
        assert found.record == quiet
        assert jobs_to_do([found], "doubtful") == ()
        assert doubtful_measurements(records) == ()
    (found,) = states_of([JOBS[0]], [busy], MACHINE)
    assert jobs_to_do([found], "doubtful") == (JOBS[0],)


def test_what_two_requests_ask_for_is_one_job():
    from favor.study.progress import states_of_all
    from favor.study.schema import Budget

    longer = a_study(names=("swin_ti",), budget=Budget(measurement="99 s"))
    states = states_of_all([a_study(names=("vit_s16", "swin_ti")), longer], [])
    assert [state.job.name for state in states if state.job.phase == "inference"] == ["vit_s16", "swin_ti"]


def test_a_training_that_starts_from_other_weights_is_another_one():
    from favor.study.resolved import FirstWeights

    plain = Train(recipe="laptop-digits", data="digits")
    fresh = TrainJob("vit_ti16", 3, plain, "cpu", 2, ())
    tuned = TrainJob("vit_ti16", 3, plain, "cpu", 2, (), FirstWeights(pretraining="digits", img_size=32))
    record = of_stage(plain, "digits")
    further = {**record.conditions, "pretraining": "digits", "pretraining_img_size": 32}
    other = Record("vit_ti16", CardFields(), "accuracy", "measured", further, record.metrics)
    assert [state(job, record)[0] for job in (fresh, tuned)] == ["done", "left"]
    assert [state(job, other)[0] for job in (fresh, tuned)] == ["left", "done"]


def test_failed_jobs_are_tried_again_on_demand_only_and_after_the_others():
    failed = a_record(JOBS[0], status="failed", reason="building: no")
    states = states_of(JOBS, [failed, a_record(JOBS[1])], MACHINE)
    assert jobs_to_do(states, None) == tuple(JOBS[2:])
    assert jobs_to_do(states, "failed") == (*JOBS[2:], JOBS[0])


TRAIN = Train(
    recipe="laptop-digits", data="digits", finetune=(Stage(recipe="laptop-digits", data="cifar10", epochs=7),)
)
TRAINING = TrainJob("vit_ti16", 3, TRAIN, "cpu", 2, ())


def of_stage(stage, dataset, final=True, seed=3, **changes):
    conditions = {"dataset": dataset, "final": final, **stage_conditions(stage, seed, "vit_ti16")}
    if stage in TRAIN.finetune:
        conditions |= {"pretraining": "digits[9+3]", "pretraining_img_size": 32}
    metrics = {"top1": reading("top1", 50.0, method="made up")}
    return Record("vit_ti16", CardFields(), "accuracy", "measured", conditions, metrics, **changes)


def test_a_training_is_done_with_the_final_record_of_its_last_stage():
    first, last = of_stage(TRAIN, "digits"), of_stage(TRAIN.finetune[0], "cifar10[20+10]")
    assert state(TRAINING, first)[0] == "left"
    assert state(TRAINING, first, of_stage(TRAIN.finetune[0], "cifar10", final=False))[0] == "left"
    assert state(TRAINING, first, of_stage(TRAIN.finetune[0], "cifar10", seed=4))[0] == "left"
    assert state(TRAINING, first, of_stage(TRAIN.finetune[0], "cifar100"))[0] == "left"
    assert state(TRAINING, first, last)[0] == "done"


def test_a_training_that_failed_has_its_reason():
    failed = of_stage(TRAIN, "digits", final=False, status="failed", reason="loss is not finite")
    assert state(TRAINING, failed) == ("failed", "failed: loss is not finite")
