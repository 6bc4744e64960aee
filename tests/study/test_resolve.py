"""From a study file to what it asks for on this machine."""

from pathlib import Path

import pytest

from favor.errors import RequestError
from favor.study.plan import jobs_of
from favor.study.resolve import resolve
from favor.study.schema import study_in
from favor.study.study_files import open_study
from favor.study.train_jobs import stage_request
from favor.training.recipe import load_recipe, pipeline_of
from favor.yaml_file import YamlFile
from favor.zoo import registry
from favor.zoo.registry import card, list_models


def resolved(text, place="my.yaml"):
    source = YamlFile(str(place), text)
    return resolve(study_in(source, "my"), source)


def names(study):
    return [model.name for model in study.models]


def test_names_aliases_patterns_classes_and_networks_of_timm_are_models_each_once():
    study = resolved("models: [vit_s16, 'vit_*16', linformer_vit_small_patch16, how:merging, timm:resnet10t]\n")
    assert names(study)[:4] == ["vit_s16", "vit_ti16", "vit_b16", "vit_l16"]
    assert names(study)[4] == "linformer_s16"
    assert names(study)[5:] == [*list_models(how="merging"), "timm:resnet10t"]
    assert names(resolved("models: [where:mlp_block]\n")) == list_models(where="mlp_block")


def test_every_model_has_its_own_size_or_those_of_the_study_and_its_class():
    own = resolved("models: [vit_s16, vix_vit]\n")
    assert [(model.img_sizes, model.how) for model in own.models] == [((224,), "baseline"), ((32,), "baseline")]
    assert resolved("models: [vit_s16]\nimg_sizes: [224, 384]\n").models[0].img_sizes == (224, 384)


def test_what_is_left_open_is_filled_in_for_this_machine():
    study = resolved("models: [vit_s16]\ndevice: cpu\nthreads: 1\nbatch_size: {inference: 4}\n")
    assert (study.batch_size.inference, study.batch_size.training) == (4, 8)
    assert (study.machine.device, study.machine.label, study.machine.threads) == ("cpu", "cpu", 1)
    assert study.hash() == resolved("models: [vit_s16]\ndevice: cpu\nthreads: 1\nbatch_size: {inference: 4}\n").hash()
    assert study.hash() != resolved("models: [vit_s16]\ndevice: cpu\nthreads: 1\nbatch_size: {inference: 5}\n").hash()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("models:\n- vit_s16\n- vit_s17\n", "my.yaml:3: models[1]: unknown model 'vit_s17'; did you mean 'vit_s16'"),
        ("models: ['nothing_*']\n", "my.yaml:1: models[0]: no model fits 'nothing_*'"),
        ("models: [how:krenel]\n", "my.yaml:1: models[0]: unknown strategy 'krenel'; did you mean 'kernel'"),
        ("models: [hwo:kernel]\n", "my.yaml:1: models[0]: unknown kind of model 'hwo'; did you mean 'how'"),
        ("models: [timm:resnet51]\n", "my.yaml:1: models[0]: "),
        ("models: [vit_s16]\n\nimg_sizes: [224, 225]\n", "my.yaml:3: img_sizes[1]: vit_s16 cannot take an image side"),
        ("models: [vit_s16]\ndevice: abacus\n", "my.yaml:2: device: "),
        (
            "models: [vit_s16]\nreport:\n  pipeline: wtf-deti3\n",
            "my.yaml:3: report.pipeline: unknown pipeline 'wtf-deti3'; did you mean 'wtf-deit3'",
        ),
        (
            "models: [vit_s16]\nphases: [accuracy]\ntrain: {recipe: laptop-digits}\n"
            "report: {pipeline: laptop-digits}\n",
            "my.yaml:4: report.pipeline: unknown pipeline 'laptop-digits'; did you mean 'laptop-digits@",
        ),
        ("models: [vit_s16]\nplugins: [nowhere.py]\n", "my.yaml:2: plugins[0]: plugin 'nowhere.py' does not exist"),
        (
            "models: [vit_s16]\nphases: [accuracy]\ntrain:\n  recipe: deit3-pretrian\n",
            "my.yaml:4: train.recipe: unknown recipe 'deit3-pretrian'; did you mean 'deit3-pretrain'",
        ),
        (
            "models: [vit_s16]\nphases: [accuracy]\ntrain:\n  recipe: laptop-digits\n  data: cifar11\n",
            "my.yaml:5: train.data: unknown dataset 'cifar11'; did you mean",
        ),
        (
            "models: [vit_s16]\nphases: [accuracy]\ntrain:\n  recipe: laptop-digits\n  epochs: 1\n",
            "my.yaml:4: train.recipe: recipe laptop-digits: warmup_epochs",
        ),
        (
            "models: [swin_ti]\nphases: [accuracy]\ntrain:\n  recipe: deit3-pretrain\n  data: digits\n"
            "  finetune:\n    recipe: laptop-digits\n",
            "my.yaml:7: train.finetune.recipe: swin_ti cannot take an image side of 32 px",
        ),
        (
            "models: [vit_s16]\nphases: [accuracy]\ntrain:\n  recipe: laptop-digits\n  data: folder:nowhere\n",
            "my.yaml:5: train.data: dataset 'folder:",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_line_before_anything_runs(text, told):
    with pytest.raises(RequestError) as refused:
        resolved(text)
    assert str(refused.value).startswith(told)


def test_a_pipeline_is_one_that_was_published_or_that_the_study_trains_by():
    trained = "models: [vit_s16]\nphases: [accuracy]\ntrain: {recipe: laptop-digits}\n"
    pipeline = pipeline_of(load_recipe("laptop-digits", []))
    assert resolved(f"{trained}report: {{pipeline: {pipeline}}}\n").report.pipeline == pipeline
    assert resolved("models: [vit_s16]\nreport: {pipeline: misnomer}\n").report.pipeline == "misnomer"


def test_models_with_values_of_their_own_are_of_the_pipeline_that_the_study_can_name():
    text = TRAINED + "  recipe: laptop-digits\n  overrides: [{models: [vit_ti16], set: [lr=1e-5]}]\n"
    study = resolved(text + "report: {pipeline: laptop-digits@1}\n")
    requests = [stage_request(job, (job.train,), Path("study"), (), resume=True) for job in jobs_of(study)]
    assert {request.pipeline for request in requests} == {"laptop-digits@1"}
    assert {request.model: request.overrides for request in requests} == {"vit_xs4": None, "vit_ti16": "lr=1e-05"}


def test_a_data_set_that_is_not_here_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("FAVOR_DATA", str(tmp_path))
    with pytest.raises(RequestError, match="my.yaml:3: train.data: dataset imagenet-21k: not in "):
        resolved("models: [vit_s16]\nphases: [accuracy]\ntrain: {recipe: deit3-pretrain, data: imagenet-21k}\n")


def test_the_data_set_of_the_recipe_is_named():
    study = resolved("models: [vit_s16]\nphases: [accuracy]\ntrain: {recipe: laptop-digits}\n")
    assert study.train[0].data == "digits"


def test_plugins_recipes_and_images_are_looked_for_beside_the_study_file(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import favor\nfrom favor.zoo.baseline.vit import vit\nfrom favor.zoo.registry import Variant, vit_sizes\n"
        "favor.register(vit_sizes('minevit_{size}16', 's'), title='Mine', how=None, year=2026, paper=None,\n"
        "               changes='Nothing.', family='mine')(vit)\n"
    )
    (tmp_path / "photos" / "train" / "a").mkdir(parents=True)
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nversion: 1\ndoc: x\ndata: digits\nimg_size: 32\nepochs: 2\nbatch_size: 8\n"
        "optimizer: adam\nlr: 0.1\n"
    )
    asked = "models: [minevit_s16]\nplugins: [mine.py]\nphases: [accuracy]\n"
    text = f"{asked}train: {{recipe: mine.yaml, data: 'folder:photos'}}\n"
    try:
        study = resolved(text, tmp_path / "my.yaml")
        assert study.models[0].how is None
        assert str(tmp_path / "mine.py") in study.plugins  # other tests of this process may have loaded theirs
        assert study.train[0].recipe == str(tmp_path / "mine.yaml")
        assert study.train[0].data == f"folder:{tmp_path / 'photos'}"
    finally:
        registry.unregister(["minevit_s16"])


@pytest.mark.parametrize("name", ["quick", "full", "vix", "misnomer", "misnomer-imagenet", "laptop"])
def test_the_studies_inside_the_package_can_be_run_here(name, monkeypatch, tmp_path):
    (tmp_path / "cifar-10-batches-bin").mkdir()
    monkeypatch.setenv("FAVOR_DATA", str(tmp_path))
    study = resolve(*open_study(name))
    assert all(card(model.name).name == model.name for model in study.models)


def test_laptop_is_twelve_families_or_more(monkeypatch, tmp_path):
    (tmp_path / "cifar-10-batches-bin").mkdir()
    monkeypatch.setenv("FAVOR_DATA", str(tmp_path))
    study = resolve(*open_study("laptop"))
    assert len({card(model.name).family for model in study.models}) >= 12
    assert len({model.how for model in study.models}) == 12


TRAINED = "models: [vit_xs4, vit_ti16]\nphases: [accuracy]\ntrain:\n"


def test_one_training_or_a_list_of_them_with_one_fine_tuning_or_several():
    one = resolved(TRAINED + "  recipe: laptop-digits\n  finetune: {recipe: laptop-digits, set: [lr=1e-4]}\n")
    several = resolved(
        TRAINED + "- recipe: laptop-digits\n  finetune:\n  - recipe: laptop-digits\n    set: [lr=1e-4]\n"
    )
    assert one == several
    assert one.train[0].finetune[0].data == "digits"


def test_a_training_may_be_of_some_models_and_some_may_have_other_values():
    text = "- recipe: laptop-digits\n- recipe: laptop-digits\n  models: ['vit_x*']\n  name: slow\n"
    text += "  overrides:\n  - models: ['vit_*']\n    set: [lr=1e-5]\n"
    first, second = resolved(TRAINED + text).train
    assert (first.models, second.models) == (None, ("vit_xs4",))
    assert second.overrides[0].models == ("vit_xs4",)
    jobs = jobs_of(resolved(TRAINED + text))
    assert [str(job) for job in jobs] == [
        "vit_xs4@32 accuracy laptop-digits seed 0",
        "vit_ti16@32 accuracy laptop-digits seed 0",
        "vit_xs4@32 accuracy laptop-digits slow seed 0",
    ]


def test_the_training_runs_of_one_model_have_titles_of_their_own():
    text = "- recipe: laptop-digits\n  seeds: [0, 1]\n- recipe: laptop-digits\n  set: [img_size=64]\n"
    text += "- recipe: laptop-cifar10\n  data: digits\n"
    titles = [str(job) for job in jobs_of(resolved(TRAINED + text))]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- recipe: laptop-digits\n- {recipe: laptop-digits, set: [lr=1e-4]}\n", "train[1]: vit_xs4 is trained twice"),
        (
            "  recipe: laptop-digits\n  models: [vit_s16]\n",
            "my.yaml:5: train.models[0]: vit_s16 is not among the models",
        ),
        ("  recipe: laptop-digits\n  overrides: [{models: [vit_b16], set: [lr=1]}]\n", "train.overrides[0].models[0]"),
        (
            "- recipe: laptop-digits\n  finetune:\n  - finetune: {}\n",
            "my.yaml:6: train[0].finetune[0].recipe: is required",
        ),
        (
            "  recipe: laptop-digits\n  overrides: [{models: ['vit_*'], set: [lrr=1]}]\n",
            "unknown key of a recipe 'lrr'",
        ),
        ("  recipe: laptop-digits\n  overrides: [{models: [a], sett: [lr=1]}]\n", "did you mean 'set'"),
        ("  recipe: laptop-digits\n  set:\n  - lr=1e-3\n  - lrr=1\n", "my.yaml:7: train.set[1]: unknown key"),
        (
            "  recipe: laptop-digits\n  overrides:\n  - models: ['vit_*']\n    set: [lr=-1]\n",
            "my.yaml:7: train.overrides[0].set: recipe laptop-digits: --set lr: Input should be greater than 0, not -1",
        ),
        (
            "  recipe: laptop-digits\n  overrides: [{models: [vit_ti16], set: [lr=1e-5, epochs=3]}]\n",
            "my.yaml:5: train.overrides[0].set[1]: epochs cannot be overridden",
        ),
        ("  recipe: laptop-digits\n  set: [seed=3]\n", "my.yaml:5: train.set[0]: the seeds of a training are in"),
        (
            "  recipe: laptop-digits\n  finetune:\n  - {recipe: laptop-digits, init: best.safetensors}\n",
            "my.yaml:6: train.finetune[0].init: fine-tuning starts from the weights of the training before",
        ),
        ("  recipe: laptop-digits\n  processes: 0\n", "train.processes: must be 1 or more"),
    ],
)
def test_what_is_wrong_with_a_training_is_said_with_its_line(text, told):
    with pytest.raises(RequestError) as error:
        resolved(TRAINED + text)
    assert told in str(error.value)
