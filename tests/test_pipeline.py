"""The names of training pipelines: what is written can be read, and trains the same again."""

from pathlib import Path

import pytest

from favor.pipeline import Pipeline
from favor.training.recipe import load_recipe, pipeline_of

CHANGES = {
    "none": [],
    "every kind of value": [
        *("epochs=7", "lr=1e-05", "optimizer=sgd", "clip_grad=null", "patience=3"),
        *("interpolation=bilinear", "mean=[0.5, 0.25, 1.0]"),
    ],
}


@pytest.mark.parametrize("minutes", [None, 5.0, 0.02])
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_a_pipeline_names_the_overrides_that_make_it_again(changes: list[str], minutes: float | None) -> None:
    text = pipeline_of(load_recipe("cars", changes), minutes)
    pipeline = Pipeline.parsed(text)
    assert pipeline is not None
    assert (str(pipeline), pipeline.recipe, pipeline.minutes) == (text, "cars", minutes)
    assert pipeline_of(load_recipe("cars", pipeline.overrides), minutes) == text


def test_the_pipeline_of_a_recipe_file_has_a_hash_whatever_its_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: my recipe@2 b\nversion: 3\ndoc: x\ndata: digits\nimg_size: 32\nepochs: 2\nbatch_size: 8\n"
        "optimizer: adam\nlr: 0.1\n"
    )
    text = pipeline_of(load_recipe(str(file), ["lr=0.2"]), source=str(file))
    pipeline = Pipeline.parsed(text)
    assert pipeline is not None
    assert (pipeline.recipe, pipeline.version, pipeline.changes) == ("my recipe@2 b", 3, {"lr": 0.2})
    assert pipeline.file_hash is not None
    assert str(pipeline) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "wtf-deit3", "timm:augreg_in21k", "mine@1 lr", "mine@1 minutes=soon"),
        *(f"mine@1 minutes={'9' * 5000}", f"mine@{'9' * 5000}"),
    ],
)
def test_a_name_that_favor_did_not_write_is_no_recipe(text: str) -> None:
    assert Pipeline.parsed(text) is None


def test_a_value_of_a_changed_record_is_text() -> None:
    pipeline = Pipeline.parsed(f"mine@1 lr={'9' * 5000} std={'(' * 100_000}")
    assert pipeline is not None
    assert set(map(type, pipeline.changes.values())) == {str}
