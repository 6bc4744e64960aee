"""Models whose papers say how they must be trained to be what they are, and what that leads to under `favor train`.

Each is a miniature, trained on digits for seconds; docs/training.md has the table.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import favor
from equality import largest_difference
from favor.data.framing import center_cut
from favor.data.opening import open_data
from favor.training.preprocessing import framing_of, normalization_of
from favor.training.recipe import load_recipe
from favor.training.request import TrainingRequest
from favor.training.run import Outcome, train
from favor.zoo import registry
from favor.zoo.encoder import Size
from favor.zoo.fuse import fuse
from favor.zoo.layers import PatchEmbed
from favor.zoo.mixing.kernel.slab import ProgressiveNorm, slab
from favor.zoo.mlp.switch import switch
from favor.zoo.registry import ImageSizes, Variant
from favor.zoo.sequence.merging.evit_fuse import evit_fuse
from favor.zoo.sequence.removal.avit import Halting, avit, prior, prior_survival
from favor.zoo.sequence.removal.dynamicvit import dynamicvit
from favor.zoo.sequence.removal.evit import evit
from favor.zoo.slots import Flow
from favor.zoo.training import take_extra_losses

SIZE = Size(24, 4, 2, 2.0)
RECIPE = load_recipe("laptop-digits", ["epochs=2", "batch_size=24", "warmup_epochs=0.2", "lr=3e-3"])
STEPS = 2 * 59
"""1437 images of digits make 59 whole batches of 24."""
IMAGES = ImageSizes(32, 8, 8)
Build = Callable[..., nn.Module]
Watch = Callable[[nn.Module], None]


class Trainer:
    """Trains miniatures under names of their own, and keeps the networks that were trained."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.built: list[nn.Module] = []
        self.names: list[str] = []

    def train(self, build: Build, watch: Watch | None = None, **settings: object) -> tuple[nn.Module, Outcome]:
        """A trained miniature in training mode; `watch` is shown every network that is built."""
        name = f"mini_{build.__name__}_{len(self.names)}"
        embed = partial(PatchEmbed, patch_size=8)

        @favor.register([Variant(name)], title=name, how=None, year=None, paper=None, changes="", image_sizes=IMAGES)
        def mini(num_classes: int, img_size: tuple[int, int], in_chans: int, drop_path: float) -> nn.Module:
            options = {"num_classes": num_classes, "img_size": img_size, "in_chans": in_chans, "drop_path": drop_path}
            self.built.append(build(SIZE, embed=embed, **settings, **options))
            if watch is not None:
                watch(self.built[-1])
            return self.built[-1]

        self.names.append(name)
        asked = TrainingRequest(name, RECIPE, "digits", self.out, device="cpu", threads=1, survey_seconds=1e-9)
        outcome = train(asked)
        return self.built[-1].train(), outcome


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    made = Trainer(tmp_path)
    yield made
    registry.unregister(made.names)


@pytest.fixture(scope="module")
def digits() -> Tensor:
    """The images that training runs are evaluated on."""
    fetched = open_data("digits").evaluation.fetch(np.arange(360), center_cut(framing_of(RECIPE), 360))
    return normalization_of(RECIPE)(fetched.images.float().div(255))


def test_dynamicvit_learns_to_keep_the_shares_that_it_is_asked_for_and_without_the_ratio_loss_it_does_not(
    trainer: Trainer, digits: Tensor
) -> None:
    assert kept_shares(trainer.train(dynamicvit)[0], digits) == pytest.approx([0.7, 0.49, 0.343], abs=0.05)
    unasked = kept_shares(trainer.train(dynamicvit, ratio_weight=0.0)[0], digits)
    assert all(share < asked - 0.1 for share, asked in zip(unasked, (0.7, 0.49, 0.343), strict=True))


@torch.no_grad()
def kept_shares(model: nn.Module, x: Tensor) -> list[float]:
    """The shares of patches that the predictors draw in training, one a predictor."""
    torch.manual_seed(0)
    tokens, flow, shares = model.embed(x), Flow(), []
    for block in model.blocks:
        tokens = block(tokens, flow)
        if block.reducer is not None:
            shares.append(float(flow.notes["kept"].mean()))
    return shares


@pytest.mark.parametrize(
    ("build", "least"), [(evit, [17, 13, 10, 8]), (evit_fuse, [17, 14, 12, 10])], ids=["evit", "evit_fuse"]
)
def test_evit_trains_with_all_tokens_at_first_and_with_70_percent_from_11_thirtieths_on(
    trainer: Trainer, build: Build, least: list[int]
) -> None:
    """Of 16 patches 12, 9 and 7 are kept; where the others are fused, the fused token counts as a patch."""
    trained: list[list[int]] = []
    evaluated: list[list[int]] = []

    def watch(model: nn.Module) -> None:
        trained.clear()  # the survey has a network of its own

        def note(block: nn.Module, inputs: tuple[Tensor, Flow], output: Tensor) -> None:
            passes = trained if block.training else evaluated
            if block is model.blocks[0]:
                passes.append([])
            passes[-1].append(output.shape[1])

        for block in model.blocks:
            block.register_forward_hook(note)

    trainer.train(build, watch)
    all_tokens = [17, 17, 17, 17]
    assert len(trained) == STEPS
    assert trained[:4] == [all_tokens] * 4
    reached = trained.index(least)
    assert 0.25 * STEPS < reached <= 11 / 30 * STEPS
    assert trained[reached:] == [least] * (STEPS - reached)
    assert sorted(trained, reverse=True) == trained
    assert evaluated == [least] * len(evaluated)


def test_avit_s_tokens_halt_around_the_prior_s_block_and_without_its_losses_they_do_not(
    trainer: Trainer, digits: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are larger than the authors', whose training has 100 epochs of ImageNet for it."""
    gate = {"gate_scale": 5.0, "gate_center": 5.0}
    model, _ = trainer.train(avit, ponder=0.02, distribution=0.2, **gate)
    entering, scores = halting(model, digits, monkeypatch)
    assert entering[:2] == pytest.approx([1.0, 1.0], abs=0.02)
    assert entering[3] == pytest.approx(prior_survival(4)[3], abs=0.15)
    assert divergence(prior(4), scores) < 0.05
    model, _ = trainer.train(avit, ponder=0.0, distribution=0.0, **gate)
    assert divergence(prior(4), halting(model, digits, monkeypatch)[1]) > 0.5


def divergence(wanted: list[float], found: list[float]) -> float:
    """Of Kullback and Leibler."""
    return sum(p * math.log(p / q) for p, q in zip(wanted, found, strict=True))


def halting(model: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], list[float]]:
    """The share of tokens that enters each block, and the share of all halting scores that each block gives."""
    running: list[float] = []
    steps: list[Halting] = []
    plain = Halting.step

    def step(self: Halting, x: Tensor, last: bool = False) -> None:
        running.append(float(self.running.float().mean()))
        steps.append(self)
        plain(self, x, last)

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(Halting, "step", step)
        model(x)
    take_extra_losses(model)
    scores = torch.stack(steps[-1].mean_scores)
    return running, (scores / scores.sum()).tolist()


def test_switch_s_experts_are_balanced_and_without_the_balance_loss_they_are_not(
    trainer: Trainer, digits: Tensor
) -> None:
    balanced = loads(trainer.train(switch, experts=4, layer_scale=None)[0], digits)
    assert balanced.max() < 1.6 / 4
    assert balanced.min() > 0.4 / 4
    unbalanced = loads(trainer.train(switch, experts=4, layer_scale=None, balance=0.0)[0], digits)
    assert unbalanced.max() > 2.2 / 4
    assert unbalanced.min() < 0.2 / 4


@torch.no_grad()
def loads(model: nn.Module, x: Tensor) -> Tensor:
    """The share of tokens that each expert serves in eval: [blocks, experts]."""
    served: list[Tensor] = []
    for block in model.eval().blocks:
        for expert in block.mlp.experts:
            expert.register_forward_hook(lambda module, inputs, output: served.append(torch.tensor(len(output))))
    model(x)
    counts = torch.stack(served).view(len(model.blocks), -1)
    return counts / counts.sum(dim=1, keepdim=True)


def test_slab_s_layer_norms_are_gone_after_16_percent_and_its_fused_form_evaluates_as_it_was_trained(
    trainer: Trainer, digits: Tensor
) -> None:
    shares: list[float] = []

    def watch(model: nn.Module) -> None:
        shares.clear()
        model.norm.register_forward_hook(
            lambda norm, inputs, output: shares.append(float(norm.layer_norm_share)) if norm.training else None
        )

    model, outcome = trainer.train(slab, watch, layer_scale=None)
    assert len(shares) == STEPS
    assert shares == pytest.approx([max(1 - step / (STEPS - 1) / 0.16, 0.0) for step in range(STEPS)], abs=1e-6)
    norms = [part for part in model.modules() if isinstance(part, ProgressiveNorm)]
    assert all(norm.layer_norm_share == 0 for norm in norms)
    with torch.no_grad():
        fused, whole = fuse(model)(digits), model.eval()(digits)
        assert largest_difference(fused, whole) < 1e-3 * float(whole.abs().max())
        with_batch_statistics = model.train()(digits).argmax(dim=1)
    labels = torch.as_tensor(open_data("digits").evaluation.labels[:360])
    top1 = float((fused.argmax(dim=1) == labels).float().mean())
    assert outcome.record is not None
    assert outcome.record.metrics["top1"].value == pytest.approx(100 * top1, abs=1.0)
    assert top1 > 0.5
    assert top1 > float((with_batch_statistics == labels).float().mean()) - 0.05


GUIDE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
BUILDERS = {
    "DynamicViT": (dynamicvit,),
    "EViT, EViT-fuse": (evit, evit_fuse),
    "A-ViT": (avit,),
    "Switch": (switch,),
    "SLAB": (slab,),
}


@pytest.mark.parametrize("row", BUILDERS)
def test_the_guide_s_table_gives_the_settings_and_their_defaults(row: str) -> None:
    line = next(line for line in GUIDE.splitlines() if line.startswith(f"| {row} |"))
    told = dict(setting.split("=") for setting in re.findall(r"`(\w+=[^`]+)`", line.split("|")[-2]))
    for build in BUILDERS[row]:
        defaults = {name: parameter.default for name, parameter in inspect.signature(build).parameters.items()}
        for name, value in told.items():
            numbers = [float(Fraction(part)) for part in value.strip("()").split(",")]
            wanted = defaults[name] if isinstance(defaults[name], tuple) else (defaults[name],)
            assert numbers == pytest.approx(wanted, rel=2e-3), name
        unsaid = set(defaults) - set(told) - {"size", "options", "survival", "experts"}
        assert not unsaid


def test_the_guide_s_name_with_another_setting_is_a_model() -> None:
    assert "evit_s16(keep=0.5)" in GUIDE
    model = favor.create_model("evit_s16(keep=0.5)", size=SIZE, img_size=64)
    assert model.blocks[1].reducer.keep == 0.5
