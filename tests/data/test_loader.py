"""The loader: each image once, the same for any number of processes and workers, broken images left out."""

import multiprocessing
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.made_up import save_image
from favor.data.augment import Augmentation, Batch, Normalization
from favor.data.broken import BrokenImages
from favor.data.folder import images_by_class
from favor.data.framing import Framing
from favor.data.in_memory import InMemory
from favor.data.loader import BatchPlan, EvaluationLoader, Share, TrainingLoader
from favor.data.sources import ImageSource
from favor.errors import RequestError, WorkError

EVERYTHING_BUT_CUTMIX = Augmentation(0.5, 1 / 3, 1 / 3, 1 / 3, 0.3)


def memory(count: int = 50, side: int = 12) -> InMemory:
    images = torch.randint(0, 256, (count, 3, side, side), generator=torch.Generator().manual_seed(0))
    return InMemory(images.to(torch.uint8), np.arange(count) % 5)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for k in range(18):
        save_image(root / "ab"[k % 2] / f"{k:02d}.png", 10 * k, (20 + k, 30 - k))
    return root


def training(source: ImageSource, plan: BatchPlan, workers: int = 0, seed: int = 7) -> TrainingLoader:
    parts = (Framing(12, padding=2), EVERYTHING_BUT_CUTMIX, Normalization())
    return TrainingLoader(source, plan, *parts, seed=seed, broken=BrokenImages(), workers=workers)


def by_sample(batches: list[Batch]) -> dict[int, torch.Tensor]:
    return {int(sample): batch.images[k] for batch in batches for k, sample in enumerate(batch.samples)}


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(0, 40), st.integers(0, 5))
def test_the_steps_of_any_plan_hold_the_samples_of_the_plan_for_one_process(
    processes: int, accumulation: int, micro: int, more: int, epoch: int
) -> None:
    batch = processes * accumulation * micro
    images = batch + more
    alone = BatchPlan(images, batch).micro_batches(1, epoch)
    shared = [
        BatchPlan(images, batch, accumulation, Share(process, processes)).micro_batches(1, epoch)
        for process in range(processes)
    ]
    for step, expected in enumerate(alone):
        parts = [part for mine in shared for part in mine[step * accumulation : (step + 1) * accumulation]]
        assert sorted(np.concatenate(parts)) == sorted(expected)
    visited = np.concatenate(alone)
    assert len(visited) == len(set(visited)) == images // batch * batch


def test_an_epoch_is_the_same_for_one_process_two_and_accumulation() -> None:
    source = memory()
    one = by_sample(list(training(source, BatchPlan(50, 16)).epoch(3)))
    two = {}
    for process in range(2):
        two |= by_sample(list(training(source, BatchPlan(50, 16, 2, Share(process, 2))).epoch(3)))
    assert one.keys() == two.keys()
    assert len(one) == 48
    assert all(torch.allclose(one[k], two[k], atol=1e-5) for k in one)
    other_epoch = by_sample(list(training(source, BatchPlan(50, 16)).epoch(4)))
    assert not all(torch.allclose(one[k], other_epoch[k], atol=0.1) for k in one.keys() & other_epoch.keys())


def test_an_epoch_resumed_at_a_step_goes_on_with_the_very_same_batches() -> None:
    loader = training(memory(), BatchPlan(50, 8, 2))
    whole = list(loader.epoch(1))
    rest = list(loader.epoch(1, first_step=4))
    assert len(whole) == 12
    assert len(rest) == 4
    for a, b in zip(whole[8:], rest, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)


def test_worker_processes_change_nothing(photos: Path) -> None:
    source = images_by_class(photos, ("a", "b"))
    alone = list(training(source, BatchPlan(18, 4)).epoch(0))
    workers = list(training(source, BatchPlan(18, 4), workers=2).epoch(0))
    assert len(alone) == len(workers) == 4
    for a, b in zip(alone, workers, strict=True):
        assert torch.equal(a.images, b.images)
        assert (a.samples == b.samples).all()


def test_labels_stay_with_their_images() -> None:
    images = torch.arange(40, dtype=torch.uint8).view(40, 1, 1, 1).expand(40, 3, 4, 4)
    source = InMemory(images, np.arange(40) * 2)
    plain = (Framing(4), Augmentation(), Normalization((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255)))
    loader = TrainingLoader(source, BatchPlan(40, 8), *plain, seed=0, broken=BrokenImages())
    for batch in loader.epoch(0):
        assert torch.allclose(batch.images[:, 0, 0, 0] * 2, batch.labels.float(), atol=1e-3)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_evaluation_sees_each_image_once_over_all_processes(processes: int) -> None:
    source, seen = memory(), []
    for process in range(processes):
        loader = EvaluationLoader(
            source, 8, Framing(12), Normalization(), broken=BrokenImages(), share=Share(process, processes)
        )
        for batch in loader:
            seen += batch.samples.tolist()
            assert batch.labels.tolist() == [sample % 5 for sample in batch.samples]
    assert sorted(seen) == list(range(50))


def test_evaluation_is_the_same_from_files_and_from_memory_of_one_size(tmp_path: Path) -> None:
    for k in range(5):
        save_image(tmp_path / "a" / f"{k}.png", 40 * k, (12, 12))
    files = images_by_class(tmp_path, ("a",))
    held = InMemory(
        torch.arange(0, 200, 40, dtype=torch.uint8).view(5, 1, 1, 1).expand(5, 3, 12, 12).contiguous(),
        np.zeros(5, dtype=np.int64),
    )
    results = []
    for source in (files, held):
        loader = EvaluationLoader(source, 2, Framing(8, crop_ratio=0.8), Normalization(), broken=BrokenImages())
        results.append(torch.cat([batch.images for batch in loader]))
    assert torch.equal(*results)


def test_broken_images_are_left_out_counted_once_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for k in range(6):
        save_image(tmp_path / "a" / f"{k}.png", k)
    torn = tmp_path / "a" / "2.png"
    torn.write_bytes(torn.read_bytes()[:40])
    (tmp_path / "a" / "4.png").write_bytes(b"")
    broken = BrokenImages()
    loader = EvaluationLoader(
        images_by_class(tmp_path, ("a",)), 3, Framing(8), Normalization(), broken=broken, workers=1
    )
    for _ in range(2):
        assert [batch.samples.tolist() for batch in loader] == [[0, 1], [3, 5]]
    assert broken.count == 2
    assert caplog.text.count(str(torn)) == 1


def test_too_many_broken_images_end_the_work(tmp_path: Path) -> None:
    for k in range(6):
        save_image(tmp_path / "a" / f"{k}.png", k)
        if k % 2:
            (tmp_path / "a" / f"{k}.png").write_bytes(b"x")
    source = images_by_class(tmp_path, ("a",))
    with pytest.raises(WorkError, match="more than 2 broken images"):
        list(EvaluationLoader(source, 2, Framing(8), Normalization(), broken=BrokenImages(limit=2)))
    assert len(list(EvaluationLoader(source, 2, Framing(8), Normalization(), broken=BrokenImages(limit=3)))) == 3


def test_a_broken_image_that_is_alone_in_its_batch_does_not_end_the_epoch(tmp_path: Path) -> None:
    for k in range(3):
        save_image(tmp_path / "a" / f"{k}.png", k)
    (tmp_path / "a" / "2.png").write_bytes(b"x")
    source, broken = images_by_class(tmp_path, ("a",)), BrokenImages()
    evaluation = EvaluationLoader(source, 2, Framing(8), Normalization(), broken=broken)
    assert [batch.samples.tolist() for batch in evaluation] == [[0, 1]]
    everything = Augmentation(0.5, 1 / 3, 1 / 3, 1 / 3, 0.3, cutmix=1.0)
    loader = TrainingLoader(source, BatchPlan(3, 1), Framing(8), everything, Normalization(), seed=0, broken=broken)
    batches = list(loader.epoch(0))
    assert sorted(len(batch) for batch in batches) == [0, 1, 1]
    assert {tuple(batch.images.shape[1:]) for batch in batches} == {(3, 8, 8)}
    assert broken.count == 1


def test_workers_leave_sigterm_to_the_process_that_trains(photos: Path) -> None:
    source = images_by_class(photos, ("a", "b"))
    batches = training(source, BatchPlan(18, 2), workers=1).epoch(0)
    first = next(batches)
    [worker] = multiprocessing.active_children()
    worker.terminate()
    rest = list(batches)
    assert len({int(sample) for batch in (first, *rest) for sample in batch.samples}) == 18
    worker.join(10)
    assert worker.exitcode == 0


def test_a_negative_number_of_workers_is_refused(photos: Path) -> None:
    with pytest.raises(RequestError, match="--workers must be 0 or more, not -1"):
        next(training(images_by_class(photos, ("a", "b")), BatchPlan(18, 2), workers=-1).epoch(0))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"images": 100, "batch_size": 10, "accumulation": 3}, "cannot be split evenly"),
        ({"images": 100, "batch_size": 10, "share": Share(0, 4)}, "choose a multiple of 4"),
        ({"images": 100, "batch_size": 128}, "do not fill one batch"),
        ({"images": 100, "batch_size": 0}, "cannot be split"),
        ({"images": 100, "batch_size": 10, "accumulation": 0}, "cannot be split"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(plan: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        BatchPlan(**plan)  # type: ignore[arg-type]


def test_images_without_one_label_each_are_refused() -> None:
    with pytest.raises(RequestError, match="3 images but 2 labels"):
        InMemory(torch.zeros(3, 3, 4, 4, dtype=torch.uint8), np.zeros(2, dtype=np.int64))
