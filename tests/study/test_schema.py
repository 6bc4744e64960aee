"""Study files: what they may say, and how what they may not is told."""

from importlib.resources import files

import pytest

from favor.cli.study import RUN_EXAMPLES
from favor.errors import RequestError
from favor.records import counted_records, published_table
from favor.study.schema import study_in
from favor.study.study_files import BUILT_IN, open_study
from favor.yaml_file import YamlFile
from favor.zoo.taxonomy import How


def read(text):
    return study_in(YamlFile("my.yaml", text), default_name="my")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("modles: [vit_s16]\n", "my.yaml:1: modles: unknown key 'modles'; did you mean 'models'?"),
        ("models: [a]\n\nphases: [inferense]\n", "my.yaml:3: phases[0]: unknown phase 'inferense'; did you mean"),
        ("models: [a]\nprecisions: [fp32, fp8]\n", "my.yaml:2: precisions[1]: unknown precision 'fp8'"),
        (
            "models: [a]\nbudget:\n  measurement: 20\n",
            "my.yaml:3: budget.measurement: 20 has no unit; write it with one",
        ),
        ("models: [a]\nbudget: {total: 6 parsecs}\n", "my.yaml:2: budget.total: cannot read '6 parsecs'"),
        ("models: [a]\nbudget: {measurement: 1 ms}\n", "my.yaml:2: budget.measurement: 1 ms is too short"),
        ("models: [a]\nbatch_size: {inference: 0}\n", "my.yaml:2: batch_size.inference: write best or a whole number"),
        ("models: [a]\nimg_sizes: 224\n", "my.yaml:2: img_sizes: write own (each model's), or a list"),
        ("models: [a]\nthreads: two\n", "my.yaml:2: threads: write a whole number"),
        ("models: a\n", "my.yaml:1: models: write a list, such as [a, b]"),
        ("models: []\n", "my.yaml:1: models: needs more entries"),
        ("models: [a, b, a]\n", "my.yaml:1: models: 'a' is listed twice"),
        ("doc: nothing\n", "my.yaml:1: models: is required"),
        ("models: [a]\nphases: [accuracy]\n", "my.yaml:2: phases: the phase accuracy needs training: add `train:`"),
        ("models: [a]\ntrain: {recipe: x}\n", "my.yaml:2: train: nothing is trained unless `phases:` lists accuracy"),
        (
            "models: [a]\nphases: [accuracy]\ntrain:\n  recipe: x\n  epochs: 1\n  minutes: 2\n",
            "my.yaml:3: train: epochs and minutes both say when training ends",
        ),
        (
            "models: [a]\nphases: [accuracy]\ntrain: {recipe: x, finetune: {recipee: y}}\n",
            "my.yaml:3: train.finetune.recipee: unknown key 'recipee'; did you mean 'recipe'?",
        ),
        (
            "models: [a]\nreport: {dataset: imagenet1k}\n",
            "my.yaml:2: report.dataset: unknown dataset 'imagenet1k'; did",
        ),
        ("models: [a]\nreport: {indicators: [params, paramz]}\n", "my.yaml:2: report.indicators[1]: unknown metric"),
        (
            "models: [a]\nreport: {indicators: [params, best_batch_size]}\n",
            "my.yaml:2: report.indicators[1]: best_batch",
        ),
        (
            "models: [a]\nreport: {min_accuracy: 0.82}\n",
            "my.yaml:2: report.min_accuracy: accuracies are in %; write 82, not 0.82",
        ),
        ("name: a/b\nmodels: [a]\n", "my.yaml:1: name: use only letters, digits"),
        ("- vit_s16\n", "my.yaml:1: a study is written as lines of `key: value`, not a list"),
        ("", "my.yaml:1: a study is written as lines of `key: value`, not an empty file"),
    ],
)
def test_what_is_wrong_is_told_with_file_line_reason_and_remedy(text, told):
    with pytest.raises(RequestError) as refused:
        read(text)
    assert str(refused.value).startswith(told)
    assert "\n" not in str(refused.value)


def test_what_is_left_out_has_its_usual_value():
    study = read("models: [vit_s16]\nbudget: {total: 6 min}\n")
    assert (study.name, study.phases, study.precisions) == ("my", ("count", "inference"), ("fp32",))
    assert (study.budget.total, study.budget.measurement) == (360.0, 20.0)


def test_every_file_inside_the_package_is_a_study_of_its_name_and_the_help_tells_what_it_takes():
    inside = {file.name for file in (files("favor.study") / "built_in").iterdir() if file.name.endswith(".yaml")}
    assert inside == {f"{name}.yaml" for name in BUILT_IN}
    for name in BUILT_IN:
        study, _ = open_study(name)
        assert study.name == name
        assert study.doc.count("\n") >= 2
        assert f"`{name}`  " in RUN_EXAMPLES


def test_quick_has_one_or_two_models_of_every_class_and_accuracies_for_all_of_them():
    study, _ = open_study("quick")
    how = {record.name: record.model.how for record in counted_records()}
    classes = [how[name] for name in study.models]
    assert len(study.models) >= 20
    assert {key: classes.count(key) for key in classes} == {
        strategy.key: pytest.approx(1.5, abs=0.5) for strategy in How
    }
    table = published_table()
    known = table[(table["pipeline"] == "wtf-deit3") & (table["dataset"] == "imagenet-1k")]
    assert set(study.models) <= set(known["name"])


@pytest.mark.parametrize("name", ["full", "paper"])
def test_full_and_paper_are_all_of_table_5(name):
    table = published_table()
    rows = table[table["provenance"].str.contains("table 5", case=False) & (table["dataset"] == "imagenet-1k")]
    assert len(rows) == 47
    assert set(open_study(name)[0].models) == set(rows["name"])


def test_an_unknown_study_and_a_file_that_is_not_there_are_refused():
    with pytest.raises(RequestError, match="unknown study 'quik'; did you mean 'quick'"):
        open_study("quik")
    with pytest.raises(RequestError, match="there is no such file"):
        open_study("nowhere/my.yaml")


def test_laptop_trains_twelve_families_or_more_for_five_minutes_each():
    study, _ = open_study("laptop")
    assert study.train[0].minutes == 5
    assert set(study.phases) >= {"inference", "accuracy"}
