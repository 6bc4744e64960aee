"""Checkpoints are whole or refused with their reason, and the one before is used."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from favor.errors import RequestError
from favor.trace.optimizer import OPTIMIZERS, create_optimizer, parameter_groups
from favor.training.checkpoint import (
    UnusableFileError,
    load_model_file,
    model_file,
    newest_checkpoint,
    optimizer_state,
    restore_optimizer,
    save_checkpoint,
    save_model,
    state_file,
)
from favor.training.predict import load_trained
from favor.training.preprocessing import carried_by
from favor.training.recipe import load_recipe
from favor.training.state import RunState, Survey, Trained
from favor.zoo.registry import create_model

SURVEY = Survey(
    accumulation=1,
    step_time=1.0,
    step_time_low=None,
    step_time_high=None,
    end_to_end=1.0,
    end_to_end_low=None,
    end_to_end_high=None,
    idle=0.0,
    evaluation_time=1.0,
    memory=1,
    memory_method="",
)


def trained(step: int, run: str = "a") -> Trained:
    return Trained(
        favor="0",
        run=run,
        step=step,
        epochs=0.1 * step,
        model="vit_s16",
        img_size=32,
        in_chans=3,
        classes=("cat", "dog"),
        dataset="pets",
        pretraining="none",
        recipe=load_recipe("laptop-digits"),
        top1=None,
    )


def taught(optimizer: str, steps: int = 3) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    optimizer = create_optimizer(parameter_groups(model, 0.01), optimizer, lr=0.1)
    learn(model, optimizer, steps)
    return model, optimizer


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def saved(folder: Path, *steps: int, run: str = "a") -> nn.Module:
    model, optimizer = taught("adamw")
    for step in steps:
        state = RunState(run=run, asked={}, steps=9, survey=SURVEY, step=step, optimizer=optimizer_state(optimizer))
        folder.mkdir(exist_ok=True)
        save_checkpoint(folder, model, trained(step, run), optimizer, state)
    return model


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_goes_on_as_if_it_had_not_been_saved(name: str, tmp_path: Path) -> None:
    model, optimizer = taught(name)
    state = RunState(run="a", asked={}, steps=9, survey=SURVEY, step=3, optimizer=optimizer_state(optimizer))
    save_checkpoint(tmp_path, model, trained(3), optimizer, state)
    found, _ = newest_checkpoint(tmp_path)
    assert found is not None
    other, fresh = taught(name, steps=0)
    other.load_state_dict(dict(found.weights))
    restore_optimizer(other, fresh, found.state.optimizer, found.tensors)
    for both in ((model, optimizer), (other, fresh)):
        learn(*both, 2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    learn(model, optimizer, 1)
    assert not all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_the_two_newest_pairs_are_kept(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3, 4)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [file.name for step in (3, 4) for file in (model_file(tmp_path, step), state_file(tmp_path, step))]


def test_two_pairs_are_kept_besides_a_newer_one_that_was_passed_over(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 9)
    state_file(tmp_path, 9).write_bytes(b"torn")
    saved(tmp_path, 3, 4)
    state_file(tmp_path, 4).write_bytes(b"torn too")
    found, refused = newest_checkpoint(tmp_path)
    assert found is not None
    assert (found.state.step, len(refused)) == (3, 2)


def test_what_a_killed_writer_left_is_taken_away_by_the_next_checkpoint(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    alone, half = state_file(tmp_path, 2), tmp_path / ".step-000000002.safetensors.part"
    ahead = tmp_path / ".step-000000004.safetensors.part"
    for file in (alone, half, ahead, tmp_path / "notes.txt"):
        file.write_bytes(b"x")
    saved(tmp_path, 3)
    left = {file.name for file in tmp_path.iterdir()}
    pairs = {file.name for step in (1, 3) for file in (model_file(tmp_path, step), state_file(tmp_path, step))}
    assert left == pairs | {ahead.name, "notes.txt"}


@pytest.mark.parametrize(
    "settings",
    [
        *({"params": [0]}, {"betas": ["x", 0.9]}, {"betas": [0.9]}, {"eps": "1e-8"}, {"amsgrad": 1}, {"lr": {}}),
        *({"x": "y"}, {"betas": [0.9, 1.0]}, {"step": -1}),
    ],
    ids=str,
)
def test_a_setting_that_no_optimizer_of_ours_wrote_is_refused(settings: dict[str, object]) -> None:
    model, optimizer = taught("adamw")
    kept = optimizer_state(optimizer)
    kept[0] |= settings
    with pytest.raises(UnusableFileError, match="which no optimizer has"):
        restore_optimizer(model, optimizer, kept, {})


def test_a_state_without_a_tensor_of_one_parameter_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    found, _ = newest_checkpoint(tmp_path)
    assert found is not None
    tensors = dict(found.tensors)
    del tensors["0.weight/exp_avg"]
    with pytest.raises(UnusableFileError, match="lacks some tensors of some parameters"):
        restore_optimizer(*taught("adamw"), found.state.optimizer, tensors)


def test_a_state_before_the_first_step_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    found, _ = newest_checkpoint(tmp_path)
    assert found is not None
    tensors = dict(found.tensors) | {"0.weight/step": torch.tensor(-1.0)}
    with pytest.raises(UnusableFileError, match="of a step before the first"):
        restore_optimizer(*taught("adamw"), found.state.optimizer, tensors)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    model = saved(tmp_path, 7)
    about, weights = load_model_file(model_file(tmp_path, 7))
    assert about == trained(7)
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("which", [model_file, state_file], ids=["model", "state"])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.99])
def test_a_torn_file_is_refused_and_the_pair_before_is_used(tmp_path: Path, which, share: float) -> None:  # type: ignore[no-untyped-def]
    saved(tmp_path, 1, 2)
    file = which(tmp_path, 2)
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    found, refused = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.state.step == 1
    assert len(refused) == 1
    assert "truncated" in refused[0]
    assert file.name in refused[0]


def test_a_pair_of_two_runs_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "here", 1, 2, run="here")
    saved(tmp_path / "there", 2, run="there")
    state_file(tmp_path / "there", 2).replace(state_file(tmp_path / "here", 2))
    found, refused = newest_checkpoint(tmp_path / "here")
    assert found is not None
    assert found.state.step == 1
    assert "belongs to run here, step 2, its state to run there, step 2" in refused[0]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"step": 10}, "its state is at step 10 of 9, evaluated at step 0"),
        ({"step": 2, "evaluated": 3}, "its state is at step 2 of 9, evaluated at step 3"),
        ({"step": 2, "evaluated": -1}, "evaluated at step -1"),
    ],
    ids=["after the end", "evaluated too early", "evaluated before the start"],
)
def test_a_state_at_a_step_that_cannot_be_is_passed_over(tmp_path: Path, changed: dict[str, int], told: str) -> None:
    saved(tmp_path, 1)
    model, optimizer = taught("adamw")
    state = RunState(run="a", asked={}, steps=9, survey=SURVEY, **changed)  # type: ignore[arg-type]
    save_checkpoint(tmp_path, model, trained(state.step), optimizer, state)
    found, refused = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.state.step == 1
    assert told in refused[0]


def test_a_model_without_its_state_is_passed_over(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2)
    state_file(tmp_path, 2).unlink()
    found, refused = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.state.step == 1
    assert "no such file" in refused[0]


def test_where_no_pair_is_whole_the_reasons_are_told(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    model_file(tmp_path, 1).write_bytes(b"not a model")
    with pytest.raises(RequestError, match="no checkpoint in .* truncated, or not a safetensors file"):
        newest_checkpoint(tmp_path)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, tmp_path / "foreign.safetensors")
    with pytest.raises(
        UnusableFileError, match="not written by `favor train`; `favor finetune FILE --model NAME` takes"
    ):
        load_model_file(tmp_path / "foreign.safetensors")


def test_a_header_of_another_version_is_refused_with_the_field(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    file = model_file(tmp_path, 1)
    about = json.loads(trained(1).model_dump_json())
    about["img_size"] = "large"
    save_file(load_file(file), file, {"favor.trained": json.dumps(about)})
    with pytest.raises(UnusableFileError, match="img_size.*another version"):
        load_model_file(file)


def test_a_class_name_that_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    file = model_file(tmp_path, 1)
    about = json.loads(trained(1).model_dump_json())
    about["classes"][1] = "\x1b[2J\0"
    save_file(load_file(file), file, {"favor.trained": json.dumps(about)})
    with pytest.raises(UnusableFileError, match=r"classes\[1\].*characters that cannot be printed") as refused:
        load_model_file(file)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"model": "vit_l16", "img_size": 224}, "vit_l16 has 303,351,810 weights, the file 310,466;"),
        ({"classes": ("a",)}, "its classifier does not fit its 1 classes"),
        ({"classes": tuple("abcdefghijklmnop")}, "vit_xs4 has .* weights, the file "),
    ],
)
def test_a_file_with_other_weights_than_it_says_is_refused_before_the_model_is_built(
    tmp_path: Path, changed: dict[str, object], refusal: str
) -> None:
    about = trained(1)
    network = create_model("vit_xs4", num_classes=len(about.classes), img_size=about.img_size)
    save_model(tmp_path / "my.safetensors", network, about.model_copy(update={"model": "vit_xs4"} | changed))
    with pytest.raises(RequestError, match=refusal):
        load_trained(tmp_path / "my.safetensors", torch.device("cpu"))


def test_a_recipe_with_another_image_size_than_its_model_is_refused(tmp_path: Path) -> None:
    file, huge = tmp_path / "my.safetensors", load_recipe("laptop-digits", [f"img_size={10**9}"])
    about = trained(1).model_copy(update={"model": "vit_xs4", "recipe": huge})
    save_model(file, create_model("vit_xs4", num_classes=2, img_size=32), about)
    with pytest.raises(RequestError, match="a model for 32 px, a recipe for 1000000000 px; download it again"):
        load_trained(file, torch.device("cpu"))
    with pytest.raises(RequestError, match="images would be resized to more than 65,536 pixels") as refused:
        carried_by(file, "vit_xs4")
    assert "\n" not in str(refused.value)


def test_a_part_that_a_killed_writer_left_is_not_taken_for_a_checkpoint(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    (tmp_path / ".step-000000002.safetensors.part").write_bytes(b"half")
    found, refused = newest_checkpoint(tmp_path)
    assert found is not None
    assert (found.state.step, refused) == (1, ())


def test_an_empty_folder_has_no_checkpoint_and_no_complaint(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "none") == (None, ())
