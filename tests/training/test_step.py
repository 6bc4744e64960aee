"""A step's gradient is that of the mean over its images, however it is cut; evaluation counts each image once."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from favor.data.augment import Batch
from favor.data.loader import BatchPlan
from favor.machine.precision import Precision
from favor.training.distributed import Processes
from favor.training.evaluation import evaluate, scored
from favor.training.randomness import DropPathBySample, SampleDraws, draw_drop_path_by_sample
from favor.training.recipe import load_recipe
from favor.training.step import Learner
from favor.zoo.layers import DropPath

CLASSES, SIDE = 6, 4
FLOAT32 = Precision(torch.float32)
MIXED = Precision(torch.float32, torch.float16)


class Linear(nn.Module):
    """One layer, and a loss term of its own where asked."""

    def __init__(self, extra: bool = False) -> None:
        super().__init__()
        self.head = nn.Linear(3 * SIDE * SIDE, CLASSES)
        self.extra_losses: dict[str, Tensor] = {}
        self.extra = extra

    def forward(self, images: Tensor) -> Tensor:
        logits = self.head(images.flatten(1))
        if self.extra:
            self.extra_losses["size"] = 0.1 * logits.square().mean()
        return logits


def batch_of(count: int, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, SIDE, SIDE, generator=generator)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return Batch(images, labels, np.arange(count), labels.roll(1), torch.rand(count, generator=generator))


def part(batch: Batch, rows: slice) -> Batch:
    return Batch(
        batch.images[rows], batch.labels[rows], batch.samples[rows], batch.other_labels[rows], batch.share[rows]
    )


def learner(extra: bool = True, batch_size: int = 12, precision: Precision = FLOAT32, **changes: object) -> Learner:
    torch.manual_seed(0)
    overrides = [f"{key}={value}" for key, value in changes.items()]
    recipe = load_recipe(
        "laptop-digits", ["optimizer=sgd", "momentum=0", "label_smoothing=0.1", "clip_grad=1000", *overrides]
    )
    return Learner(Linear(extra), recipe, BatchPlan(120, batch_size), CLASSES, precision)


def gradient_after(parts: list[Batch], images: int, **options: object) -> Tensor:
    taught = learner(**options)  # type: ignore[arg-type]
    for number, batch in enumerate(parts, 1):
        taught.gather(batch, last=number == len(parts))
    taught.clip(images)
    assert taught.weights.head.weight.grad is not None
    return taught.weights.head.weight.grad


def test_micro_batches_give_the_gradient_of_the_whole_batch() -> None:
    whole = batch_of(12)
    thirds = [part(whole, slice(first, first + 4)) for first in (0, 4, 8)]
    expected = gradient_after([whole], 12)
    assert torch.allclose(gradient_after(thirds, 12), expected, atol=1e-6)
    assert not torch.allclose(gradient_after(thirds[:2], 12), expected, atol=1e-3)


def test_where_images_are_broken_the_mean_is_over_those_that_are_left() -> None:
    whole = batch_of(12)
    left = part(whole, slice(0, 7))
    expected = gradient_after([left], 7, batch_size=7)
    uneven = [part(whole, slice(0, 4)), part(whole, slice(4, 7))]
    assert torch.allclose(
        gradient_after(uneven, 7, extra=False), gradient_after([left], 7, batch_size=7, extra=False), atol=1e-6
    )
    assert not torch.allclose(gradient_after(uneven, 12), expected, atol=1e-3)


def test_a_micro_batch_of_broken_images_only_changes_nothing() -> None:
    whole = batch_of(12)
    left, nothing = part(whole, slice(0, 8)), part(whole, slice(0, 0))
    expected = gradient_after([left], 8)
    assert torch.allclose(gradient_after([left, nothing], 8), expected, atol=1e-6)
    assert expected.abs().max() > 1e-3
    assert gradient_after([nothing], 0).abs().max() == 0


def test_the_models_own_losses_are_part_of_the_objective() -> None:
    with_term, without = (learner(extra).objective(batch_of(12)) for extra in (True, False))
    logits = learner(True).weights.head(batch_of(12).images.flatten(1))
    assert torch.allclose(with_term, without + 0.1 * logits.square().mean())


def test_the_gradient_is_clipped_after_it_is_unscaled() -> None:
    scaled, plain = (learner(precision=kind, clip_grad=0.01) for kind in (MIXED, FLOAT32))
    scaled.scaler = torch.amp.GradScaler("cpu", init_scale=128.0)  # the usual first one overflows, and is then lowered
    for taught in (scaled, plain):
        taught.gather(batch_of(12), last=True)
    assert scaled.gradient_norm() == pytest.approx(plain.gradient_norm(), rel=1e-2)
    norms = [float(taught.clip(12)) for taught in (scaled, plain)]  # type: ignore[arg-type]
    assert norms[0] == pytest.approx(norms[1], rel=1e-2)
    assert scaled.weights.head.weight.grad.norm() <= 0.0101  # type: ignore[union-attr]


def test_a_step_whose_gradient_overflows_float16_is_skipped_and_the_scale_lowered() -> None:
    taught = learner(precision=MIXED)
    before, scale = taught.weights.head.weight.clone(), taught.scaler.get_scale()
    batch = batch_of(12)
    taught.gather(replace(batch, images=batch.images * torch.inf), last=True)
    taught.clip(12)
    taught.update(1.0)
    assert torch.equal(taught.weights.head.weight, before)
    assert taught.scaler.get_scale() < scale


def test_the_learning_rate_of_a_step_is_the_one_given() -> None:
    taught = learner(clip_grad=1000.0, weight_decay=0.0)
    before = taught.weights.head.weight.clone()
    taught.gather(batch_of(12), last=True)
    taught.clip(12)
    gradient = taught.weights.head.weight.grad.clone()  # type: ignore[union-attr]
    taught.update(0.25)
    assert torch.allclose(taught.weights.head.weight, before - 0.25 * gradient, atol=1e-6)
    assert taught.weights.head.weight.grad is None


logit_tables = st.integers(1, 40).flatmap(
    lambda rows: st.tuples(
        st.lists(st.lists(st.integers(-3, 3), min_size=7, max_size=7), min_size=rows, max_size=rows),
        st.lists(st.integers(0, 6), min_size=rows, max_size=rows),
    )
)


@given(logit_tables)
def test_top_1_and_top_5_are_those_of_a_stable_sort(table: tuple[list[list[int]], list[int]]) -> None:
    logits, labels = table
    places = [
        sorted(range(7), key=lambda k, row=row: (-row[k], k)).index(label) for row, label in zip(*table, strict=True)
    ]  # type: ignore[misc]
    found = scored(torch.tensor(logits, dtype=torch.float32), torch.tensor(labels))
    assert found[0] == sum(place < 1 for place in places)
    assert found[1] == sum(place < 5 for place in places)


def test_logits_that_are_no_numbers_are_never_right() -> None:
    assert scored(torch.full((4, 7), torch.nan), torch.zeros(4, dtype=torch.long))[:2].tolist() == [0.0, 0.0]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_scores_do_not_depend_on_how_images_are_cut_into_batches(sizes: list[int]) -> None:
    torch.manual_seed(0)
    model = Linear()
    whole = batch_of(sum(sizes))
    starts = np.cumsum([0, *sizes])
    cut = [part(whole, slice(int(first), int(last))) for first, last in pairwise(starts)]
    one, many = (evaluate(model, batches, FLOAT32, Processes()) for batches in ([whole], cut))
    assert (one.top1, one.top5, one.images) == (many.top1, many.top5, many.images)
    assert one.loss == pytest.approx(many.loss, rel=1e-5)


def test_drop_path_belongs_to_the_sample_not_to_its_place_in_the_batch() -> None:
    draws = SampleDraws(seed=5)
    drop = DropPathBySample(0.5, draws).train()
    samples = np.arange(40)
    draws.begin(3, samples)
    whole, again = drop(torch.ones(40, 2)), drop(torch.ones(40, 2))
    draws.begin(3, samples[20:])
    assert torch.equal(drop(torch.ones(20, 2)), whole[20:])
    assert not torch.equal(again, whole), "the second call of a forward pass draws anew"
    draws.begin(4, samples)
    assert not torch.equal(drop(torch.ones(40, 2)), whole)
    assert set(whole.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(drop.eval()(torch.ones(40, 2)), torch.ones(40, 2))


def test_drop_path_keeps_its_share_of_images_and_rows_of_one_sample_differ() -> None:
    draws = SampleDraws(seed=0)
    draws.begin(0, np.arange(1000))
    kept = draws.keep(4000, 0.3)
    assert kept.mean() == pytest.approx(0.7, abs=0.03)
    assert not np.array_equal(kept[:1000], kept[1000:2000])


def test_drop_paths_of_ours_and_of_timm_are_replaced() -> None:
    from timm.layers import DropPath as TimmDropPath

    model = nn.Sequential(DropPath(0.1), nn.Sequential(TimmDropPath(0.2)), nn.Linear(2, 2))
    draw_drop_path_by_sample(model, seed=0)
    found = [part.rate for part in model.modules() if isinstance(part, DropPathBySample)]
    assert found == [0.1, 0.2]
    assert not any(isinstance(part, TimmDropPath) for part in model.modules())
