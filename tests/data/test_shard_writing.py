"""Shards: what `favor shards` writes, and that any number of processes and workers reads each image once."""

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from data.made_up import save_image
from favor.cli import app
from favor.data.augment import Augmentation, Batch, Normalization
from favor.data.broken import BrokenImages
from favor.data.framing import Framing, center_cut, random_cut
from favor.data.in_memory import InMemory
from favor.data.loader import BatchPlan, EvaluationLoader, Share, TrainingLoader
from favor.data.opening import open_data, open_for_evaluation
from favor.data.shard_index import ShardIndex, read_index
from favor.data.shard_writing import write_shards
from favor.data.shards import open_shards
from favor.data.sources import DataSet, ImageSource
from favor.errors import RequestError

LIMIT = 50_000
TRAIN, VAL = 24, 7


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of noise, whose files differ in size, so that shards differ in length."""
    root = tmp_path_factory.mktemp("photos")
    for split, count in (("train", TRAIN), ("val", VAL)):
        for k in range(count):
            side = 30 + 3 * k if split == "train" else 20
            pixels = np.random.default_rng(k).integers(0, 256, (side, side + k, 3), dtype=np.uint8)
            file = root / split / "abc"[k % 3] / f"{k:02d}.{'jpg' if k % 4 else 'png'}"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(file)
    return root


@pytest.fixture(scope="module")
def shards(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards") / "set"
    written(open_data(f"folder:{photos}"), folder)
    return folder


def written(data: DataSet, into: Path, on_visit: Callable[[int], None] = lambda _: None) -> ShardIndex:
    return write_shards(data, "folder", into, LIMIT, BrokenImages(), on_visit)


def loader(source: ImageSource, share: Share, workers: int = 0, seed: int = 5) -> TrainingLoader:
    parts = (Framing(16, padding=2), Augmentation(0.5, 1 / 3, 1 / 3, 1 / 3, 0.3), Normalization())
    plan = BatchPlan(len(source), 12, share=share)
    return TrainingLoader(source, plan, *parts, seed=seed, broken=BrokenImages(), workers=workers)


def samples(batches: list[Batch]) -> list[int]:
    return [int(sample) for batch in batches for sample in batch.samples]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_any_number_of_processes_and_workers_reads_each_image_once_an_epoch_and_resumes_in_its_middle(
    photos: Path, shards: Path, processes: int, workers: int
) -> None:
    opened = open_data(f"folder:{shards}")
    assert len({shard.images for shard in read_index(shards).train}) > 1  # type: ignore[union-attr]
    from_folder = loader(open_data(f"folder:{photos}").train, Share()).epoch(2)
    plain = {sample: batch for batch in from_folder for sample in samples([batch])}
    seen: list[int] = []
    for process in range(processes):
        mine = loader(opened.train, Share(process, processes), workers)
        whole = list(mine.epoch(2))
        rest = list(mine.epoch(2, first_step=1))
        assert samples(rest) == samples(whole)[12 // processes :]
        assert torch.equal(rest[0].images, whole[1].images)
        for batch in whole:
            for k, sample in enumerate(batch.samples):
                expected = plain[int(sample)]
                place = int(np.flatnonzero(expected.samples == sample)[0])
                assert torch.allclose(batch.images[k], expected.images[place], atol=1e-5)
                assert batch.labels[k] == expected.labels[place]
        seen += samples(whole)
    assert sorted(seen) == list(range(TRAIN))


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_evaluation_from_shards_reads_each_image_once(shards: Path, processes: int) -> None:
    source, seen = open_data(f"folder:{shards}").evaluation, []
    for process in range(processes):
        share = Share(process, processes)
        seen += samples(
            list(EvaluationLoader(source, 2, Framing(8), Normalization(), broken=BrokenImages(), share=share))
        )
    assert sorted(seen) == list(range(VAL))


def test_the_order_follows_from_seed_and_epoch(shards: Path) -> None:
    source = open_data(f"folder:{shards}").train
    first = samples(list(loader(source, Share()).epoch(0)))
    assert first == samples(list(loader(source, Share()).epoch(0)))
    assert first != samples(list(loader(source, Share()).epoch(1)))
    assert first != samples(list(loader(source, Share(), seed=6).epoch(0)))


def test_shards_are_plain_webdataset_below_the_limit_with_the_files_as_they_were(photos: Path, shards: Path) -> None:
    originals = {file.read_bytes() for file in photos.rglob("*.*")}
    tars = sorted(shards.rglob("*.tar"))
    found = set()
    for tar in tars:
        assert tar.stat().st_size <= LIMIT
        with tarfile.open(tar) as opened:
            members = {member.name: opened.extractfile(member).read() for member in opened}  # type: ignore[union-attr]
        keys = [name.partition(".") for name in members]
        assert len(members) == 2 * len({key for key, _, _ in keys})
        found |= {content for name, content in members.items() if not name.endswith(".cls")}
    assert found == originals
    assert len(tars) > 4


def test_without_its_index_a_folder_of_shards_is_read_as_any_other(shards: Path, tmp_path: Path) -> None:
    shutil.copytree(shards, tmp_path / "set")
    (tmp_path / "set" / "index.json").unlink()
    plain, indexed = open_shards(tmp_path / "set"), open_data(f"folder:{shards}")
    assert sorted(plain.train.labels) == sorted(indexed.train.labels)
    assert indexed.classes == ("a", "b", "c")


def test_a_folder_with_val_alone_becomes_shards_for_evaluation(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos / "val", tmp_path / "photos" / "val")
    expected = open_data(f"folder:{photos}").evaluation
    for source, folder in (("photos", "first"), ("first", "second")):
        done = CliRunner().invoke(app, ["shards", f"folder:{tmp_path / source}", "-o", str(tmp_path / folder)])
        assert done.exit_code == 0, done.output
        assert "in `favor evaluate` only: there are no training images" in done.output
        data = open_for_evaluation(f"folder:{tmp_path / folder}", ("a", "b", "c"), whole=False)
        assert (data.classes, len(data.train)) == (("a", "b", "c"), 0)
        assert data.evaluation.labels.tolist() == expected.labels.tolist()
        with pytest.raises(RequestError, match="no training images in the shards; only `favor evaluate` can use them"):
            open_data(f"folder:{tmp_path / folder}")
    (tmp_path / "first" / "index.json").unlink()
    numbered = open_for_evaluation(f"folder:{tmp_path / 'first'}", ("0", "1", "2"), whole=False)
    assert sorted(numbered.evaluation.labels) == sorted(expected.labels)


def test_photos_in_shards_are_turned_as_the_camera_was_held(tmp_path: Path) -> None:
    top_is_white = np.zeros((64, 64, 3), dtype=np.uint8)
    top_is_white[:32] = 255
    upside_down = Image.Exif()
    upside_down[0x0112] = 3
    for name in ("train/a", "train/b", "val/a", "val/b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.fromarray(top_is_white).save(tmp_path / "photos" / name / "0.jpg", exif=upside_down)
    written(open_data(f"folder:{tmp_path / 'photos'}"), tmp_path / "set")
    data, first = open_data(f"folder:{tmp_path / 'set'}"), np.arange(1)
    for source in (data.train, data.evaluation):
        for cut in (center_cut(Framing(16), 1), random_cut(Framing(16), 0, 0, first)):
            image = source.fetch(first, cut).images[0]
            assert image[:, 0].max() < 5
            assert image[:, -1].min() > 250


def test_classes_are_mixed_within_a_shard(shards: Path) -> None:
    with tarfile.open(shards / "train" / "000000.tar") as tar:
        labels = {tar.extractfile(member).read() for member in tar if member.name.endswith(".cls")}  # type: ignore[union-attr]
    assert len(labels) > 1


@pytest.mark.parametrize("after", [0, 5, 17, TRAIN + 3])
def test_a_killed_run_is_refused_by_readers_and_goes_on_to_the_same_bytes(
    photos: Path, shards: Path, tmp_path: Path, after: int
) -> None:
    data, visited = open_data(f"folder:{photos}"), 0

    def kill(count: int) -> None:
        nonlocal visited
        visited += count
        if visited > after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        written(data, tmp_path / "set", kill)
    with pytest.raises(RequestError, match=r"only \d+ of 31 images are in the shards; run `favor shards"):
        open_data(f"folder:{tmp_path / 'set'}")
    written(data, tmp_path / "set")
    assert contents(tmp_path / "set") == contents(shards)


def test_a_damaged_shard_is_written_again(photos: Path, shards: Path, tmp_path: Path) -> None:
    shutil.copytree(shards, tmp_path / "set")
    (tmp_path / "set" / "train" / "000001.tar").write_bytes(b"x")
    with pytest.raises(RequestError, match="000001.tar: has 1 bytes where the index says"):
        open_data(f"folder:{tmp_path / 'set'}")
    written(open_data(f"folder:{photos}"), tmp_path / "set")
    assert contents(tmp_path / "set") == contents(shards)


def test_a_broken_image_is_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for k in range(6):
        save_image(tmp_path / "photos" / ("train" if k < 4 else "val") / "ab"[k % 2] / f"{k}.png", k)
    (tmp_path / "photos" / "train" / "a" / "2.png").write_bytes(b"x")
    index = written(open_data(f"folder:{tmp_path / 'photos'}"), tmp_path / "set")
    assert [shard.images for shard in index.train] == [3]
    assert "2.png" in caplog.text
    assert len(open_data(f"folder:{tmp_path / 'set'}").train) == 3


def test_images_in_memory_come_back_as_they_were(tmp_path: Path) -> None:
    pixels = torch.randint(0, 256, (5, 3, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    held = InMemory(pixels, np.array([0, 1, 0, 1, 1]))
    written(DataSet("folder", ("a", "b"), held, held, ""), tmp_path / "set")
    opened = open_data(f"folder:{tmp_path / 'set'}").train
    plain = (8, Framing(8), Normalization((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255)))
    [batch] = EvaluationLoader(opened, *plain, broken=BrokenImages())
    assert torch.equal(batch.images.round().to(torch.uint8), pixels)
    assert batch.labels.tolist() == [0, 1, 0, 1, 1]


def test_a_folder_with_other_content_is_refused(photos: Path, shards: Path, tmp_path: Path) -> None:
    data = open_data(f"folder:{photos}")
    with pytest.raises(RequestError, match="this folder is not empty"):
        written(data, photos)
    with pytest.raises(RequestError, match="holds other shards .folder, 24 . 7 images"):
        write_shards(data, "folder", shards, 2 * LIMIT, BrokenImages(), lambda _: None)
    with pytest.raises(RequestError, match="--shard-size must be at least 32,768 bytes, not 5"):
        write_shards(data, "folder", tmp_path / "new", 5, BrokenImages(), lambda _: None)
    with pytest.raises(RequestError, match="holds shards of folder, not of imagenet-1k"):
        open_data(f"imagenet-1k:{shards}")


def spoil_index(**changes: object) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        content = json.loads((folder / "index.json").read_text())
        (folder / "index.json").write_text(json.dumps(content | changes))

    return spoil


def spoil_positions(column: int, value: int) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        file = folder / "val" / "000000.positions"
        content = bytearray(file.read_bytes())
        content[column : column + 4] = value.to_bytes(4, "little", signed=True)
        file.write_bytes(content)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_index(format="2"), "not an index of shards"),
        (spoil_index(more=1), "not an index of shards"),
        (spoil_index(classes=["a", "b", "c\n"]), "is not a valid name"),
        (spoil_index(classes=["a"]), "is outside its shard or has no valid class"),
        (spoil_positions(0, 2**30), "is outside its shard"),
        (spoil_positions(0, -1), "is outside its shard"),
        (spoil_positions(8, 2**30), "is outside its shard"),
        (spoil_positions(20, -1), "has no valid class"),
        (lambda folder: (folder / "val" / "000000.positions").write_bytes(b"x" * 5), "do not fit 7 images"),
        (lambda folder: (folder / "val" / "000000.tar").unlink(), "there is no such file"),
    ],
)
def test_a_spoiled_index_is_refused(shards: Path, tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    shutil.copytree(shards, tmp_path / "set")
    spoil(tmp_path / "set")
    with pytest.raises(RequestError, match=message):
        open_data(f"folder:{tmp_path / 'set'}")


def test_the_command_says_what_it_wrote_and_how_to_read_it(photos: Path, tmp_path: Path) -> None:
    command = ["shards", f"folder:{photos}", "-o", str(tmp_path / "set"), "--shard-size", "50kB", "--json"]
    for _ in range(2):  # the second time there is nothing left to do
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert told["data"] == f"folder:{tmp_path / 'set'}"
        assert (told["train"]["images"], told["val"]["images"], told["classes"]) == (TRAIN, VAL, 3)
        assert told["train"]["shards"] == len(list((tmp_path / "set" / "train").glob("*.tar")))
