"""Loss terms of the parts reach the training loop, and neither a copy nor an evaluation meets those of a past pass."""

import copy
import io

import pytest
import torch

import favor
from equality import images
from favor.zoo.registry import create_miniature
from favor.zoo.training import take_extra_losses

WITH_EXTRA_LOSSES = {
    "dynamicvit_s16": {"ratio"},
    "avit_s16": {"ponder", "distribution"},
    "switch_8_s16": {"balance"},
    "routing_s16": {"commitment"},
}
every_model = pytest.mark.parametrize("name", WITH_EXTRA_LOSSES)
X = images(2, 3, 64, 64)


@every_model
def test_a_training_pass_leaves_its_terms_and_hands_them_out_once(name: str) -> None:
    model = create_miniature(name).train()
    model(X)
    assert set(take_extra_losses(model)) == WITH_EXTRA_LOSSES[name]
    assert take_extra_losses(model) == {}


@every_model
def test_a_model_can_be_copied_fused_and_saved_between_its_pass_and_its_step(name: str) -> None:
    model = create_miniature(name).train()
    model(X)
    copied = copy.deepcopy(model)
    torch.save(model, io.BytesIO())
    expected = model.eval()(X)
    assert torch.equal(favor.fuse(model)(X), expected)
    assert take_extra_losses(copied) == {}, "a term belongs to the graph of the model that made it"
    terms = take_extra_losses(model.train())
    assert set(terms) == WITH_EXTRA_LOSSES[name]
    sum(terms.values()).backward()
    copied(X)
    assert set(take_extra_losses(copied)) == WITH_EXTRA_LOSSES[name]


@every_model
def test_terms_of_a_training_pass_are_not_those_of_an_evaluation(name: str) -> None:
    model = create_miniature(name).train()
    model(X)
    model.eval()(X)
    assert take_extra_losses(model) == {}
    assert take_extra_losses(model.train()) == {}, "they are gone, and their graph with them"


@pytest.mark.parametrize("name", ["switch_8_s16", "dynamicvit_s16"])
def test_a_compiled_training_pass_leaves_its_terms_too(name: str) -> None:
    torch._dynamo.reset()
    model = create_miniature(name).train()
    torch.compile(model, backend="eager")(X).sum().backward()
    assert set(take_extra_losses(model)) == WITH_EXTRA_LOSSES[name]
