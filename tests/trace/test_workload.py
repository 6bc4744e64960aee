"""What is measured: forms, operating points, precision, and what a training step does."""

import pytest
import torch
from torch import nn

from favor.trace.workload import (
    Inference,
    Precision,
    Training,
    benchmark_optimizer,
    build,
    random_images,
)
from favor.zoo.fuse import inference_form
from favor.zoo.operating_point import operating_point
from favor.zoo.registry import create_miniature

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def avit() -> nn.Module:
    return build("avit_ti16", "inference", img_size=64, num_classes=10)


def test_avit_is_timed_with_the_survival_that_its_prior_imposes(avit):
    assert operating_point(avit)["survival"] == "imposed"
    assert not avit.halts_by_score


def test_tokens_really_leave_avit_at_its_operating_point(avit):
    tokens = []
    for block in avit.blocks:
        block.register_forward_pre_hook(lambda module, inputs: tokens.append(inputs[0].shape[1]))
    Inference(avit, 64, CPU, Precision.named("fp32", "cpu"), compiled=False).at(2).run()
    assert tokens[0] == 17
    assert tokens[-1] < 5


def test_avit_is_trained_by_its_own_halting_scores_and_says_so():
    trained = build("avit_ti16", "training", img_size=64, num_classes=10)
    assert trained.halts_by_score
    assert operating_point(trained)["survival"].startswith("by halting scores")


def test_a_model_without_an_operating_point_adds_no_condition():
    assert operating_point(create_miniature("vit_ti16")) == {}


def test_the_inference_form_is_told_from_the_one_that_is_trained():
    assert inference_form(create_miniature("vit_ti16"))[1] is False
    model, fused = inference_form(nn.Sequential(Folds()))
    assert fused is True
    assert isinstance(model[0], nn.Identity)


class Folds(nn.Module):
    def fuse(self) -> nn.Module:
        return nn.Identity()


class Probe(nn.Module):
    """Remembers the mode and types that it is called with; its extra loss is the sum of its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3 * 8 * 8, 5)
        self.extra = nn.Parameter(torch.ones(1))
        self.extra_losses = {}
        self.seen = []

    def forward(self, images):
        output = self.head(images.flatten(1))
        self.seen.append((self.training, torch.is_inference_mode_enabled(), images.dtype, output.dtype, len(images)))
        if self.training:
            self.extra_losses["probe"] = 1000 * self.extra.sum()
        return output


@pytest.mark.parametrize(
    ("precision", "images", "output"),
    [
        ("fp32", torch.float32, torch.float32),
        ("bf16", torch.bfloat16, torch.bfloat16),
        ("amp", torch.float32, torch.bfloat16),
    ],
)
def test_inference_is_in_eval_mode_without_gradients_and_in_the_precision_asked(precision, images, output):
    probe = Probe()
    Inference(probe, 8, CPU, Precision.named(precision, "cpu"), compiled=False).at(3).run()
    assert probe.seen == [(False, True, images, output, 3)]


def test_a_training_step_moves_the_weights_by_all_losses():
    probe = Probe()
    training = Training(probe, 8, CPU, Precision.named("fp32", "cpu"), compiled=False, optimizer="sgd")
    before = probe.extra.item()
    call = training.at(4)
    call.run()
    assert probe.seen[0][0] is True
    assert probe.seen[0][-1] == 4
    assert probe.extra.item() < before
    assert probe.extra_losses == {}


def test_the_update_alone_runs_no_forward_pass():
    probe = Probe()
    training = Training(probe, 8, CPU, Precision.named("fp32", "cpu"), compiled=False, optimizer="sgd")
    call = training.update_alone(4)
    passes, before = len(probe.seen), probe.head.weight.clone()
    call.run()
    assert len(probe.seen) == passes
    assert not torch.equal(before, probe.head.weight)


@pytest.mark.parametrize(("name", "kind"), [("lamb", "Lamb"), ("adamw", "AdamW"), ("adam", "Adam"), ("sgd", "SGD")])
def test_the_optimizer_asked_for_is_the_one_used(name, kind):
    assert type(benchmark_optimizer(name, [nn.Parameter(torch.ones(1))])).__name__ == kind


def test_images_are_the_same_every_time_and_of_the_size_they_say():
    assert random_images(3, 8).shape == (3, 3, 8, 8)
    assert torch.equal(random_images(3, 8), random_images(3, 8))
    assert random_images(2, 8).std() > 0.5
