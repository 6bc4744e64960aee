"""The jobs of a study and their order."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from favor.measurement.job import MeasureJob
from favor.study.local_executor import count_record
from favor.study.plan import CountJob, jobs_of
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


def test_a_job_of_a_study_file_asks_for_the_same_as_favor_measure_does():
    from favor.study.options import study_from_options
    from favor.study.resolve import resolve
    from favor.study.schema import study_in
    from favor.yaml_file import YamlFile

    text = (
        "models: [vit_s16]\nphases: [inference, training]\nimg_sizes: [224]\nthreads: 2\nruntimes: [compile]\n"
        "optimizer: sgd\nbudget: {measurement: 5 s}\ntime_limit: 99 s\nmemory_limit: 2GB\nfit_memory: 8GiB\n"
        "reference_batch: 64\nepoch_images: 10\ngrid_intensity: 400\nprice_per_hour: 2.5\nbatch_size: 4\n"
        "precisions: [bf16]\nenergy: false\nnum_classes: 10\n"
    )
    source = YamlFile("my.yaml", text)
    options = {
        "img_sizes": [224],
        "threads": 2,
        "runtimes": ["compile"],
        "optimizer": "sgd",
        "budget": "5",
        "time_limit": "99",
        "memory_limit": "2GB",
        "fit_memory": "8GiB",
        "reference_batch": 64,
        "epoch_images": 10,
        "energy": False,
        "grid_intensity": 400.0,
        "price_per_hour": 2.5,
        "batch_size": "4",
        "precisions": ["bf16"],
        "num_classes": 10,
    }
    from_file = jobs_of(resolve(study_in(source, "my"), source))
    from_options = jobs_of(study_from_options("measure", ["vit_s16"], ("inference", "training"), options))
    assert from_file == from_options
    job = from_file[0]
    assert (job.runtime, job.optimizer, job.budget, job.time_limit) == ("compile", "sgd", 5.0, 99.0)
    assert (job.memory_limit, job.fit_memory, job.reference_batch) == (2 * 10**9, 8 * 2**30, 64)
    assert (job.epoch_images, job.grid_intensity, job.price_per_hour) == (10, 400, 2.5)
    assert (job.batch_size, job.precision, job.energy, job.num_classes) == (4, "bf16", False, 10)


def test_every_option_of_a_job_can_be_asked_for():
    from dataclasses import fields

    from favor.study.plan import FOR_INT8, SHARED_OPTIONS
    from favor.study.schema import Load, MeasureOptions

    by_the_plan = {"name", "phase", "img_size", "precision", "device", "device_label", "threads", "batch_size"}
    by_the_plan |= {"runtime", *FOR_INT8}
    by_the_executor = {"in_turns", "exported"}
    known = SHARED_OPTIONS | by_the_plan | by_the_executor | set(Load.model_fields) | {"budget", "plugins"}
    assert {field.name for field in fields(MeasureJob)} == known
    asked = SHARED_OPTIONS | {"precisions", "runtimes", "batch_size", *FOR_INT8} - {"checkpoint_hash"}
    assert set(MeasureOptions.model_fields) == asked


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
    assert with_energy.energy
    assert not without.energy
    assert with_energy.conditions == without.conditions


def test_loads_are_tested_with_the_budget_and_the_limit_of_their_own_part():
    from favor.study.schema import Load

    load = Load(p99="50 ms", budget="30 s")
    jobs = jobs_of(a_study(("vit_s16", "swin_ti"), phases=("load",), load=load, runtimes=("openvino",)))
    assert [(job.name, job.phase, job.budget) for job in jobs] == [("vit_s16", "load", 30.0), ("swin_ti", "load", 30.0)]
    conditions = jobs[0].conditions
    assert (conditions["p99_limit"], conditions["scenario"], conditions["runtime"]) == (0.05, "server", "openvino")
