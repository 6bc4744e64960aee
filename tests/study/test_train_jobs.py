"""Training as a job: a worker that writes its own records, and what is written for it where it could not."""

import json
import sys

import pytest
from msgspec.structs import replace

from favor.errors import RequestError, WorkError
from favor.machine.messages import Findings
from favor.records.schema import CardFields, Record, reading
from favor.records.store import append, read
from favor.study import local_executor
from favor.study.allocation import key_of
from favor.study.progress import jobs_to_do, states_of
from favor.study.resolved import FirstWeights
from favor.study.schema import Override, Stage, Train
from favor.study.train_jobs import (
    TrainJob,
    dataset_of,
    final_record,
    initial_weights,
    is_of,
    recipe_of,
    stage_conditions,
    stage_request,
)
from favor.training.request import TrainingRequest
from study.made_up import MACHINE

TRAIN = Train(recipe="laptop-digits", data="digits", minutes=0.5)
JOB = TrainJob("vit_ti16", 1, TRAIN, "cpu", 2, ("my_models.py",))
TWO_STAGES = TRAIN.model_copy(update={"finetune": (Stage(recipe="laptop-cifar10", data="cifar10", epochs=3),)})
LONG_JOB = TrainJob("vit_ti16", 1, TWO_STAGES, "cpu", 2, ())

# It stands in for the worker: says how far it is, writes what it is told to, and ends as it is told to.
WORKER = """
import json, os, sys
from pathlib import Path
request = json.loads(sys.stdin.readline())
plan = Path(sys.argv[1])
def tell(**message):
    os.write(int(sys.argv[2]), (json.dumps(message) + "\\n").encode())
tell(step="training"); tell(progress="epoch 1 of 2")
print("last words", file=sys.stderr)
with (Path(request["study"]) / "records.jsonl").open("ab") as file:
    file.write((plan / "lines").read_bytes())
for message in json.loads((plan / "messages").read_text()):
    tell(**message)
sys.exit(int((plan / "code").read_text()))
"""


def final(stage, dataset, run="run-1"):
    conditions = {"dataset": dataset, "final": True, **stage_conditions(stage, 1, "vit_ti16")}
    if dataset != "digits":
        conditions |= {"pretraining": "digits", "pretraining_img_size": 32}
    metrics = {"top1": reading("top1", 97.0, method="made up")}
    return Record("vit_ti16", CardFields(), "accuracy", "measured", conditions, metrics, environment={"run": run})


@pytest.fixture
def worker(monkeypatch, tmp_path):
    """A worker that writes the given records, tells the given messages and ends with the given code."""
    from favor.records.schema import to_line

    (tmp_path / "study").mkdir()
    command = (sys.executable, "-c", WORKER, str(tmp_path))
    monkeypatch.setattr(local_executor, "worker_command", lambda module: command)

    def run(job, records=(), code=0, messages=({"status": "ok", "reason": None},), resume=True):
        (tmp_path / "lines").write_bytes(b"".join(to_line(record) for record in records))
        (tmp_path / "code").write_text(str(code))
        (tmp_path / "messages").write_text(json.dumps(messages))
        steps = []
        found = local_executor.train(job, tmp_path / "study", steps.append, steps.append, resume)
        append(tmp_path / "study", found)
        return found, steps

    run.folder = tmp_path / "study"
    return run


def test_the_request_says_all_that_the_study_asks(tmp_path):
    request = stage_request(JOB, (TRAIN,), tmp_path, (), resume=True)
    assert (request.model, request.recipe.name, request.recipe.seed) == ("vit_ti16", "laptop-digits", 1)
    assert (request.data, request.minutes, request.study, request.resume) == ("digits", 0.5, tmp_path, True)
    assert (request.device, request.threads, request.plugins) == ("cpu", 2, ("my_models.py",))
    records = [final(TWO_STAGES, "digits", "run-7")]
    later = stage_request(LONG_JOB, LONG_JOB.lineages[-1], tmp_path, records, resume=True)
    assert (later.recipe.name, later.recipe.epochs, later.init) == ("laptop-cifar10", 3, tmp_path / "runs" / "run-7")


def test_a_request_survives_the_way_to_the_worker(tmp_path):
    request = stage_request(JOB, (TRAIN,), tmp_path, (), resume=False)
    assert TrainingRequest.from_json(request.to_json()) == request


def test_a_training_that_ended_well_leaves_its_own_records_and_nothing_of_ours(worker):
    found, steps = worker(JOB, [final(TRAIN, "digits")])
    assert found == ()
    assert steps == ["laptop-digits on digits", "training", "epoch 1 of 2"]
    assert len(read(worker.folder).records) == 1


def test_what_is_trained_already_is_not_trained_again(worker):
    append(worker.folder, [final(TRAIN, "digits")])
    assert worker(JOB, code=1) == ((), [])


def test_a_crash_without_a_word_becomes_a_record_that_the_study_knows(worker):
    (found,), _ = worker(JOB, code=7, messages=())
    assert (found.status, found.reason) == (
        "failed",
        "training: ended with exit code 7; last line of stderr: last words",
    )
    (state,) = states_of([JOB], read(worker.folder).records, MACHINE)
    assert state.status == "failed"


def test_a_failure_that_the_training_wrote_itself_is_not_written_twice(worker):
    conditions = {"dataset": "digits", **stage_conditions(TRAIN, 1, "vit_ti16")}
    own = Record("vit_ti16", CardFields(), "accuracy", "measured", conditions, status="failed", reason="not finite")
    assert worker(JOB, [own], code=1, messages=({"status": "failed", "reason": "training: not finite"},))[0] == ()
    (state,) = states_of([JOB], read(worker.folder).records, MACHINE)
    assert state.reason == "failed: not finite"


def test_a_failure_is_not_written_twice_where_the_records_of_other_nodes_come_after_it(worker):
    conditions = {"dataset": "digits", **stage_conditions(TRAIN, 1, "vit_ti16")}
    own = Record("vit_ti16", CardFields(), "accuracy", "measured", conditions, status="failed", reason="not finite")
    append(worker.folder, [Record("vit_s16", CardFields(), "accuracy", "measured", conditions)], writer="0001-00005")
    assert worker(JOB, [own], code=1, messages=({"status": "failed", "reason": "training: not finite"},))[0] == ()


def test_a_training_that_was_told_to_stop_is_left(worker):
    assert worker(JOB, messages=({"status": "failed", "reason": "training: interrupted"},))[0] == ()
    (state,) = states_of([JOB], (), MACHINE)
    assert state.status == "left"


def test_a_training_that_is_refused_is_a_failure_of_the_study_and_an_error_of_the_command(worker):
    with pytest.raises(RequestError, match="^begun already$"):
        worker(JOB, messages=({"refused": "begun already"},), resume=False)
    assert read(worker.folder).records == ()
    (found,), _ = worker(JOB, messages=({"refused": "another recipe"},))
    assert (found.status, found.reason) == ("failed", "training: another recipe")


def test_the_second_stage_needs_the_end_of_the_first(worker, tmp_path):
    with pytest.raises(WorkError, match="cannot be fine-tuned"):
        stage_request(LONG_JOB, LONG_JOB.lineages[-1], tmp_path, (), resume=True)
    append(worker.folder, [final(TWO_STAGES, "digits")])
    _, steps = worker(LONG_JOB, [final(TWO_STAGES.finetune[0], "cifar10")])
    assert steps[0] == "laptop-cifar10 on cifar10"
    (state,) = states_of([LONG_JOB], read(worker.folder).records, MACHINE)
    assert state.status == "done"


CARS, FLOWERS = (Stage(recipe="laptop-digits", data="digits", set=(f"batch_size={size}",)) for size in (64, 128))
SMALL, LARGE = (
    Stage(recipe="laptop-cifar10", data="cifar10", set=(f"img_size={size}",), finetune=(CARS, FLOWERS) if small else ())
    for size, small in ((32, True), (64, False))
)
TREE = TRAIN.model_copy(update={"minutes": None, "finetune": (SMALL, LARGE)})
TREE_JOB = TrainJob("vit_ti16", 1, TREE, "cpu", 2, ())


def final_of(lineage, run="run-1"):
    conditions = {"dataset": dataset_of(lineage[-1]), "final": True, **stage_conditions(lineage[-1], 1, "vit_ti16")}
    conditions |= initial_weights(TREE_JOB, lineage).conditions()
    metrics = {"top1": reading("top1", 97.0, method="made up")}
    return Record("vit_ti16", CardFields(), "accuracy", "measured", conditions, metrics, environment={"run": run})


def test_a_pretraining_has_several_fine_tunings_each_from_the_weights_before_it(tmp_path):
    first, small, cars, flowers, large = TREE_JOB.lineages
    assert [lineage[-1] for lineage in TREE_JOB.lineages] == [TREE, SMALL, CARS, FLOWERS, LARGE]
    assert initial_weights(TREE_JOB, cars) == FirstWeights(
        pretraining="digits+cifar10", img_size=32, pipeline="laptop-digits@1 + laptop-cifar10@1", seed="1+1"
    )
    assert initial_weights(TREE_JOB, large) == FirstWeights(
        pretraining="digits", img_size=32, pipeline="laptop-digits@1", seed="1"
    )
    records = [final_of(first, "first"), final_of(small, "small")]
    inits = [stage_request(TREE_JOB, lineage, tmp_path, records, resume=True).init for lineage in (large, flowers)]
    assert [init.name for init in inits] == ["first", "small"]


def test_a_training_is_done_when_all_its_fine_tunings_are():
    records = [final_of(lineage) for lineage in TREE_JOB.lineages]
    for missing in range(len(records)):
        (state,) = states_of([TREE_JOB], records[:missing] + records[missing + 1 :], MACHINE)
        assert state.status == "left", TREE_JOB.lineages[missing]
    (state,) = states_of([TREE_JOB], records, MACHINE)
    assert state.status == "done"


def failure_of(lineage):
    return replace(final_of(lineage), metrics={}, status="failed", reason="training: not finite")


def test_a_training_is_left_as_long_as_a_fine_tuning_can_still_be_done_whatever_failed_before():
    first, small, cars, flowers, large = TREE_JOB.lineages
    done = [final_of(first), final_of(small)]

    def status(*records):
        (state,) = states_of([TREE_JOB], records, MACHINE)
        return state.status

    assert status(*done, failure_of(cars)) == "left"
    assert status(*done, failure_of(cars), final_of(flowers)) == "left"
    assert status(*done, failure_of(cars), final_of(flowers), final_of(large)) == "failed"
    assert status(final_of(first), failure_of(small)) == "left"
    assert status(final_of(first), failure_of(small), final_of(large)) == "failed"
    assert status(failure_of(first)) == "failed"


def test_a_study_that_was_interrupted_after_a_failed_fine_tuning_goes_on_with_the_others(worker):
    first, small, cars, flowers, large = TREE_JOB.lineages
    append(worker.folder, [final_of(first), final_of(small), failure_of(cars)])
    assert jobs_to_do(states_of([TREE_JOB], read(worker.folder).records, MACHINE)) == (TREE_JOB,)
    worker(TREE_JOB, [final_of(cars), final_of(flowers), final_of(large)])
    (state,) = states_of([TREE_JOB], read(worker.folder).records, MACHINE)
    assert state.status == "done"


def test_a_worker_that_succeeds_without_a_final_record_is_a_failure(worker):
    (found,), _ = worker(JOB)
    assert (found.status, found.reason) == ("failed", "training: no final record")


def test_a_fine_tuning_that_fails_stops_those_after_it_and_no_other(worker):
    first = TREE_JOB.lineages[0]
    append(worker.folder, [final_of(first)])
    found, steps = worker(TREE_JOB, code=7, messages=())
    assert [step for step in steps if " on " in step] == ["laptop-cifar10 on cifar10"] * 2
    assert [(record.conditions["dataset"], record.conditions["recipe.img_size"]) for record in found] == [
        ("cifar10", 32),
        ("cifar10", 64),
    ]


def test_a_refused_fine_tuning_is_left_out_by_the_followers_as_by_the_leader(monkeypatch, tmp_path):
    append(tmp_path, [final_of(TREE_JOB.lineages[0])])
    tried = []

    def refused(command, request, **_):
        tried.append(TrainingRequest.from_json(request).recipe.img_size)
        raise RequestError("another recipe")

    monkeypatch.setattr(local_executor, "supervise", refused)
    failures = local_executor.train(TREE_JOB, tmp_path, print, print)
    assert [record.reason for record in failures] == ["training: another recipe"] * 2
    local_executor.follow_training(TREE_JOB, tmp_path, None)
    assert tried == [32, 64] * 2


def of_a_study(*trainings):
    """One job for each training of a study."""
    return [TrainJob("vit_ti16", 1, training, "cpu", 2, ()) for training in trainings]


def the_record_of(job, lineage, **more):
    """The final record of a training, as its worker writes it."""
    stage = lineage[-1]
    conditions = {"dataset": dataset_of(stage), "final": True, **stage_conditions(stage, job.seed, job.name)}
    conditions |= initial_weights(job, lineage).conditions() | more
    metrics = {"top1": reading("top1", 97.0, method="made up")}
    return Record(job.name, CardFields(), "accuracy", "measured", conditions, metrics)


TUNED = Stage(recipe="laptop-cifar10", data="cifar10")


def test_the_same_fine_tuning_after_another_pretraining_is_another_training():
    long, short = of_a_study(
        Train(recipe="laptop-digits", data="digits", finetune=(TUNED,)),
        Train(recipe="laptop-digits", data="digits", epochs=5, name="short", finetune=(TUNED,)),
    )
    record = the_record_of(long, long.lineages[-1])
    assert final_record(long, long.lineages[-1], [record]) is record
    assert final_record(short, short.lineages[-1], [record]) is None
    # One that another command started from another seed of the same pretraining is not of the study.
    other = the_record_of(long, long.lineages[-1], pretraining_seed="7")
    assert final_record(long, long.lineages[-1], [other]) is None


def test_fine_tunings_of_two_checkpoints_of_one_pretraining_are_two_trainings():
    known = FirstWeights(pretraining="digits", img_size=32, pipeline="laptop-digits@1", seed="0", hash="a" * 16)
    first, second = (
        TrainJob("vit_ti16", 1, Train(recipe="laptop-cifar10", data="cifar10", init="x"), "cpu", 2, (), weights)
        for weights in (known, known.model_copy(update={"hash": "b" * 16}))
    )
    record = the_record_of(first, first.lineages[-1])
    assert [final_record(job, job.lineages[-1], [record]) for job in (first, second)] == [record, None]
    assert key_of(first) != key_of(second)


def test_a_named_training_is_not_done_by_one_without_the_name_nor_the_other_way_round(monkeypatch, tmp_path):
    plain, named = of_a_study(Train(recipe="laptop-digits"), Train(recipe="laptop-digits", name="again"))
    records = [the_record_of(plain, plain.lineages[0]), the_record_of(named, named.lineages[0], training_name="again")]
    for record in records:
        done = [final_record(job, job.lineages[0], [record]) is record for job in (plain, named)]
        assert done == [record is records[0], record is records[1]]
    monkeypatch.setattr(local_executor, "supervise", lambda *_, **__: Findings(status="failed", reason="killed"))
    (failure,) = local_executor.train(named, tmp_path, print, print)
    assert [is_of(job, job.lineages[0], failure) for job in (plain, named)] == [False, True]


def test_records_of_older_versions_do_not_tell_what_came_before_and_still_count():
    job, named = of_a_study(
        Train(recipe="laptop-digits", data="digits", finetune=(TUNED,)), Train(recipe="laptop-digits", name="again")
    )
    told = the_record_of(job, job.lineages[-1])
    unknown = {"pretraining_pipeline", "pretraining_seed"}
    conditions = {name: value for name, value in told.conditions.items() if name not in unknown}
    older = Record("vit_ti16", CardFields(), "accuracy", "measured", conditions, told.metrics)
    assert final_record(job, job.lineages[-1], [older]) is older
    plain = the_record_of(named, named.lineages[0])
    older = Record(
        *("vit_ti16", CardFields(), "accuracy", "measured", plain.conditions, plain.metrics),
        environment={"run": "vit_ti16-laptop-digits-digits-32px-seed1-again"},
    )
    assert final_record(named, named.lineages[0], [older]) is older


def test_the_models_of_a_stage_share_its_pipeline_and_overrides_are_told_apart(tmp_path):
    override = Override(models=("vit_ti16",), set=("lr=1e-4", "warmup_epochs=1"))
    train = Train(recipe="laptop-digits", data="digits", set=("batch_size=64",), overrides=(override,))
    jobs = [TrainJob(model, 0, train, "cpu", 2, ()) for model in ("vit_ti16", "vit_s16")]
    requests = [stage_request(job, (train,), tmp_path, (), resume=True) for job in jobs]
    assert [request.pipeline for request in requests] == ["laptop-digits@1 batch_size=64"] * 2
    assert [request.overrides for request in requests] == ["lr=0.0001 warmup_epochs=1.0", None]
    assert TrainingRequest.from_json(requests[0].to_json()) == requests[0]


def test_a_model_gets_the_values_that_are_given_for_it_and_the_others_the_recipe_s():
    override = Override(models=("vit_ti16",), set=("lr=1e-4", "warmup_epochs=1"))
    stage = Stage(recipe="laptop-digits", data="digits", set=("lr=5e-3",), overrides=(override,))
    assert [recipe_of(stage, 0, model).lr for model in ("vit_ti16", "vit_s16")] == [1e-4, 5e-3]


def test_the_threads_of_a_machine_are_shared_by_the_processes_and_each_finds_its_own_gpu(tmp_path):
    job = TrainJob("vit_ti16", 1, TRAIN.model_copy(update={"processes": 4}), "cuda:0", 8, ())
    request = stage_request(job, (job.train,), tmp_path, (), resume=True)
    assert (request.processes, request.threads, request.device) == (4, 2, "cuda")
