"""The jobs of a study and their order."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from favor.records.schema import request_of
from favor.study.local_executor import count_record
from favor.study.plan import CountJob, MeasureJob, jobs_of
from favor.study.resolved import PlannedModel
from favor.study.schema import Train
from favor.zoo.taxonomy import How
from study.made_up import a_study

CLASSES = [how.key for how in How]


def test_counts_come_first_then_inference_then_training_steps_then_accuracy():
    train = Train(recipe="laptop-digits", data="digits", seeds=(0, 1))
    study = a_study(phases=("accuracy", "training", "inference", "count"), train=train)
    phases = [phase for phase, _ in groupby(job.phase for job in jobs_of(study))]
    assert phases == ["count", "inference", "training", "accuracy"]


def test_one_model_of_each_class_comes_before_the_second_ones_and_baselines_come_first():
    jobs = [job.name for job in jobs_of(a_study()) if job.phase == "inference"]
    assert jobs == ["vit_s16", "swin_ti", "cvt_13", "vit_ti16", "wavevit_s", "efficientformerv2_s0"]


def test_what_is_in_no_class_comes_right_after_the_first_baseline():
    jobs = [job.name for job in jobs_of(a_study(names=("swin_ti", "vit_s16", "my_own"))) if job.phase == "inference"]
    assert jobs == ["vit_s16", "my_own", "swin_ti"]


@given(st.lists(st.sampled_from([*CLASSES, None]), min_size=1, max_size=40))
def test_no_class_gets_its_next_model_before_every_class_has_had_its_turn(classes):
    models = tuple(PlannedModel(name=f"m{i}", how=how, img_sizes=(224,)) for i, how in enumerate(classes))
    how_of = {model.name: model.how for model in models}
    order = [how_of[job.name] for job in jobs_of(a_study(models=models, phases=("inference",)))]
    assert sorted(map(str, order)) == sorted(map(str, classes))
    rounds = [order[:i].count(how) for i, how in enumerate(order)]
    assert rounds == sorted(rounds)


def test_sizes_and_precisions_multiply_the_smallest_image_and_the_first_precision_first():
    models = (
        PlannedModel(name="vit_s16", how="baseline", img_sizes=(384, 224)),
        PlannedModel(name="swin_ti", how="sparse", img_sizes=(224,)),
    )
    jobs = [job for job in jobs_of(a_study(models=models, precisions=("fp32", "bf16"))) if isinstance(job, MeasureJob)]
    assert [(job.name, job.img_size, job.precision) for job in jobs] == [
        ("vit_s16", 224, "fp32"),
        ("swin_ti", 224, "fp32"),
        ("vit_s16", 384, "fp32"),
        ("vit_s16", 224, "bf16"),
        ("swin_ti", 224, "bf16"),
        ("vit_s16", 384, "bf16"),
    ]


def test_a_job_asks_for_the_same_as_favor_measure_does():
    from favor.measure.meters import requests_for
    from favor.measure.request import Settings

    from favor.machine.device import Cpu

    settings = Settings(phases=("inference", "training"), img_size=224, threads=2)
    asked = {request.phase: request for request in requests_for(["vit_s16"], settings, Cpu())}
    for job in jobs_of(a_study(names=("vit_s16",), phases=("inference", "training"))):
        own = job.request(budget=5.0, time_limit=9.0, memory_limit=None)
        hashes = [request_of(r.name, r.phase, r.conditions()) for r in (own, asked[job.phase])]
        assert hashes[0] == hashes[1]


def test_a_count_is_of_one_image_at_the_size_and_classes_of_the_study():
    job = next(job for job in jobs_of(a_study(num_classes=10)) if isinstance(job, CountJob))
    assert job.conditions == {"img_size": 224, "num_classes": 10, "batch_size": 1}


def test_a_count_at_an_operating_point_says_so_in_its_conditions():
    conditions = count_record(CountJob("switch_xs4", 32, 10)).conditions
    assert conditions["experts"] == 4
    assert "even over the experts" in conditions["routing"]
    assert conditions["img_size"] == 32


def test_energy_is_left_out_where_the_study_says_so_and_asks_for_the_same_otherwise():
    with_energy, without = (jobs_of(a_study(names=("vit_s16",), energy=energy))[-1] for energy in (True, False))
    assert with_energy.request(1.0, 1.0, None).energy
    assert not without.request(1.0, 1.0, None).energy
    assert with_energy.conditions == without.conditions
