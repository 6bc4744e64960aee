"""Every layout is read as its authors wrote it, and what is torn or foreign is refused with its reason."""

import gzip
import io
import lzma
import pickle
import tarfile
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from data.made_up import cifar_records, save_image
from favor.data import download
from favor.data.archive import unpacked
from favor.data.cifar import open_cifar10, open_cifar100, unpickled_arrays
from favor.data.folder import images_by_class, open_folder
from favor.data.framing import Framing, center_cut
from favor.data.idx import open_fashion_mnist
from favor.data.in_memory import InMemory
from favor.data.matlab_lists import open_cars, open_flowers102
from favor.data.names import SETS, find, parse
from favor.data.opening import open_data, open_for_evaluation
from favor.data.shards import has_shards, open_shards
from favor.data.sources import ImageSource
from favor.data.tiny_imagenet import open_tiny_imagenet
from favor.errors import RequestError, WorkError


def brightness(source: ImageSource) -> list[int]:
    """The upper left value of every image, at 8x8."""
    samples = np.arange(len(source))
    return source.fetch(samples, center_cut(Framing(8), len(samples))).images[:, 0, 0, 0].tolist()


# ---------------------------------------------------------------------------------------------------- inside


def test_digits_are_1797_real_images_split_once_and_for_all() -> None:
    digits = open_data("digits")
    assert (digits.name, len(digits.train), len(digits.evaluation), digits.num_classes) == ("digits", 1437, 360, 10)
    assert isinstance(digits.train, InMemory)
    assert digits.train.images.shape[1:] == (3, 32, 32)
    assert np.bincount(digits.evaluation.labels).min() > 20
    from sklearn.datasets import load_digits

    total = np.bincount(load_digits().target)
    assert (np.bincount(digits.train.labels) + np.bincount(digits.evaluation.labels) == total).all()


def test_synthetic_images_are_the_same_every_time_and_tell_their_class() -> None:
    first, second = open_data("synthetic"), open_data("synthetic")
    assert isinstance(first.train, InMemory)
    assert isinstance(second.train, InMemory)
    assert torch.equal(first.train.images, second.train.images)
    means = torch.stack([first.train.images[first.train.labels == k].float().mean(0) for k in range(10)])
    nearest = torch.cdist(first.evaluation.images.float().flatten(1), means.flatten(1)).argmin(1)  # type: ignore[attr-defined]
    assert float((nearest.numpy() == first.evaluation.labels).mean()) > 0.95


# ---------------------------------------------------------------------------------------------------- CIFAR


def write_cifar10(root: Path, compressed: bool) -> np.ndarray:
    parts = [cifar_records(20, 1, 10, seed) for seed in range(6)]
    for name, part in zip([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"], parts, strict=True):
        content = part.tobytes()
        path = root / f"{name}.bin{'.xz' if compressed else ''}"
        path.write_bytes(lzma.compress(content) if compressed else content)
    return np.concatenate(parts)


def write_pickled_cifar10(root: Path, records: np.ndarray, protocol: int = 4) -> None:
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    for name, part in zip(names, np.split(records, 6), strict=True):
        content = {b"data": part[:, 1:].copy(), b"labels": part[:, 0].tolist(), b"filenames": [b"a.png"]}
        (root / name).write_bytes(pickle.dumps(content, protocol))
    (root / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"c%d" % k for k in range(10)]}, protocol))


@pytest.mark.parametrize("compressed", [False, True])
def test_the_binary_version_of_cifar10_is_read_plain_and_compressed(tmp_path: Path, compressed: bool) -> None:
    records = write_cifar10(tmp_path, compressed)
    (tmp_path / "batches.meta.txt").write_text("\n".join(f"c{k}" for k in range(10)) + "\n\n")
    splits = open_cifar10(tmp_path)
    assert isinstance(splits.train, InMemory)
    assert splits.train.images.numpy().reshape(100, -1).tolist() == records[:100, 1:].tolist()
    assert splits.evaluation.labels.tolist() == records[100:, 0].tolist()
    assert splits.classes == tuple(f"c{k}" for k in range(10))


def test_the_pickled_version_of_cifar10_holds_the_same_as_the_binary_one(tmp_path: Path) -> None:
    records = np.concatenate([cifar_records(20, 1, 10, seed) for seed in range(6)])
    write_pickled_cifar10(tmp_path, records)
    splits = open_cifar10(tmp_path)
    assert isinstance(splits.train, InMemory)
    assert splits.train.images.numpy().reshape(100, -1).tolist() == records[:100, 1:].tolist()
    assert splits.classes[3] == "c3"


def python_2_pickle(pixels: bytes, labels: bytes) -> bytes:
    """What Python 2 and the numpy of 2009 wrote, opcode by opcode: texts are bytes, numpy.core is public."""
    text = len(pixels).to_bytes(4, "little") + pixels
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\x01b\x87R"
    kind = b"cnumpy\ndtype\nU\x02u1K\0K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    shape = b"K" + bytes([len(labels)]) + b"M\x00\x0c\x86"
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return (
        b"\x80\x02}(U\x04data" + array + b"(K\x01" + shape + kind + b"\x89T" + text + b"tbU\x06labels" + listed + b"u."
    )


def test_pickles_of_python_2_are_read_as_the_authors_of_cifar10_distribute_them(tmp_path: Path) -> None:
    pixels = cifar_records(2, 1, 10)[:, 1:]
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        (tmp_path / name).write_bytes(python_2_pickle(pixels.tobytes(), bytes([7, 4])))
    splits = open_cifar10(tmp_path)
    assert isinstance(splits.evaluation, InMemory)
    assert splits.evaluation.images.numpy().reshape(2, -1).tolist() == pixels.tolist()
    assert splits.train.labels.tolist() == [7, 4] * 5


def test_without_the_file_of_names_the_classes_are_not_taken_for_those_of_another_set(tmp_path: Path) -> None:
    write_cifar10(tmp_path, compressed=False)
    splits = open_cifar10(tmp_path)
    assert splits.classes[3] == "cat"
    assert not set(splits.classes) & set(open_data("digits").classes)


def test_cifar100_is_read_with_its_fine_classes(tmp_path: Path) -> None:
    records = cifar_records(200, 2, 100)
    (tmp_path / "train.bin").write_bytes(records.tobytes())
    (tmp_path / "test.bin").write_bytes(records[:100].tobytes())
    splits = open_cifar100(tmp_path)
    assert len(splits.classes) == 100
    assert splits.train.labels.tolist() == records[:, 1].tolist()


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (eval, ("__import__('pathlib').Path('ran').touch()",))


def test_a_pickle_that_wants_to_run_something_is_refused_and_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").write_bytes(pickle.dumps({b"data": Malicious()}))
    with pytest.raises(RequestError, match="refused: the pickle uses 'builtins.eval'"):
        unpickled_arrays(tmp_path / "bad")
    assert not (tmp_path / "ran").exists()


class Reduced:
    """Is pickled as a call of something with something."""

    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self) -> tuple[object, ...]:
        return self.call


OBJECTS = Reduced(np.dtype, ("O", False, True))
DISGUISED = Reduced(np.dtype, ("u1", False, True), (3, "|", None, None, None, -1, -1, 63))


@pytest.mark.parametrize(
    ("hostile", "message"),
    [
        (Reduced(np.ndarray, ((1,), OBJECTS, b"A" * 8)), "array of type 'O'"),
        (Reduced(np.ndarray, ((1,), DISGUISED, b"A" * 8)), "the pickle calls 'numpy.ndarray'"),
        (np.array([None]), "array of type 'O8'"),
        (np.zeros(3), "array of type 'f8'"),
    ],
    ids=["objects of an address", "bytes that say they are objects", "objects", "floats"],
)
def test_a_pickle_gets_no_arrays_but_those_of_bytes(tmp_path: Path, hostile: object, message: str) -> None:
    (tmp_path / "batches.meta").write_bytes(pickle.dumps({b"label_names": hostile}, 4))
    with pytest.raises(RequestError, match=message):
        unpickled_arrays(tmp_path / "batches.meta")


def test_what_a_pickle_says_about_bytes_changes_nothing_about_them(tmp_path: Path) -> None:
    from numpy._core.multiarray import _reconstruct

    array = Reduced(_reconstruct, (np.ndarray, (0,), b"b"), (1, (2, 3), DISGUISED, True, bytes(range(6))))
    (tmp_path / "file").write_bytes(pickle.dumps({b"data": array, b"label_names": b"abc"}, 4))
    data = unpickled_arrays(tmp_path / "file")[b"data"]
    assert data.tolist() == [[0, 2, 4], [1, 3, 5]]
    assert not data.dtype.hasobject


def test_a_torn_pickle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "torn").write_bytes(pickle.dumps({b"data": np.zeros(9, dtype=np.uint8)})[:-20])
    with pytest.raises(RequestError, match="truncated or not a pickle"):
        unpickled_arrays(tmp_path / "torn")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("test_batch.bin", b"\0" * 3000, "not a whole number of records"),
        ("test_batch.bin", b"\x0b" + b"\0" * 3072, "label 11 is out of range for 10 classes"),
        ("test_batch.bin", None, "no test_batch.bin"),
        ("test_batch.bin", b"", "no images"),
    ],
)
def test_a_wrong_file_of_cifar10_is_refused(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    write_cifar10(tmp_path, compressed=False)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError, match=message):
        open_cifar10(tmp_path)


def test_a_negative_label_is_refused(tmp_path: Path) -> None:
    write_pickled_cifar10(tmp_path, np.concatenate([cifar_records(2, 1, 10, seed) for seed in range(6)]))
    content = {b"data": cifar_records(1, 1, 10)[:, 1:].copy(), b"labels": [-1]}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content, 4))
    with pytest.raises(RequestError, match="label -1 is out of range for 10 classes"):
        open_cifar10(tmp_path)


def test_a_torn_compressed_file_is_refused(tmp_path: Path) -> None:
    write_cifar10(tmp_path, compressed=True)
    file = tmp_path / "test_batch.bin.xz"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(RequestError, match="truncated or not xz"):
        open_cifar10(tmp_path)


def test_the_real_cut_of_cifar10_is_balanced_and_looks_like_photographs(real_data: Path) -> None:
    data = open_data("cifar10-mini")
    assert np.bincount(data.train.labels).tolist() == [200] * 10
    assert np.bincount(data.evaluation.labels).tolist() == [50] * 10
    images = data.train.images.float()  # type: ignore[attr-defined]
    neighbors = (images[..., 1:] - images[..., :-1]).abs().mean()
    assert float(neighbors) < 0.35 * float(images.std())  # channels and rows in the right order make smooth images


# ---------------------------------------------------------------------------------------------------- idx


def idx(array: np.ndarray) -> bytes:
    shape = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.tobytes()


def write_fashion(root: Path, compressed: bool) -> np.ndarray:
    images = np.random.default_rng(0).integers(0, 256, (12, 28, 28), dtype=np.uint8)
    for prefix in ("train", "t10k"):
        for name, array in (("images-idx3", images), ("labels-idx1", (np.arange(12) % 10).astype(np.uint8))):
            content = idx(array)
            path = root / f"{prefix}-{name}-ubyte{'.gz' if compressed else ''}"
            path.write_bytes(gzip.compress(content) if compressed else content)
    return images


@pytest.mark.parametrize("compressed", [False, True])
def test_fashion_mnist_is_read_and_its_gray_becomes_rgb(tmp_path: Path, compressed: bool) -> None:
    images = write_fashion(tmp_path, compressed)
    train = open_fashion_mnist(tmp_path).train
    assert isinstance(train, InMemory)
    for channel in range(3):
        assert (train.images[:, channel].numpy() == images).all()


@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: b"\1" + c[1:], lambda c: b""])
def test_a_wrong_idx_file_is_refused(tmp_path: Path, change: object) -> None:
    write_fashion(tmp_path, compressed=False)
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(change(file.read_bytes()))  # type: ignore[operator]
    with pytest.raises(RequestError, match="download it again"):
        open_fashion_mnist(tmp_path)


# ---------------------------------------------------------------------------------------------------- folders


def write_folders(root: Path, splits: tuple[str, ...] = ("train", "val")) -> None:
    for number, split in enumerate(splits):
        for label, name in enumerate(("ant", "bee")):
            for k in range(2):
                save_image(root / split / name / f"{k}.png", 100 * label + 10 * k + number)


def test_folders_are_classes_in_the_order_of_their_names(tmp_path: Path) -> None:
    write_folders(tmp_path)
    (tmp_path / "train" / "bee" / "notes.txt").write_text("not an image")
    splits = open_folder(tmp_path)
    assert splits.classes == ("ant", "bee")
    assert splits.train.labels.tolist() == [0, 0, 1, 1]
    assert brightness(splits.train) == [0, 10, 100, 110]
    assert brightness(splits.evaluation) == [1, 11, 101, 111]


def test_a_class_that_was_never_trained_on_is_refused(tmp_path: Path) -> None:
    write_folders(tmp_path)
    save_image(tmp_path / "val" / "cat" / "0.png", 0)
    with pytest.raises(RequestError, match="'cat' is not among the classes"):
        open_folder(tmp_path)


def test_a_training_folder_alone_is_refused(tmp_path: Path) -> None:
    write_folders(tmp_path, ("train",))
    with pytest.raises(RequestError, match="none of val"):
        open_folder(tmp_path)


def test_grayscale_palette_and_transparent_images_become_rgb(tmp_path: Path) -> None:
    for k, mode in enumerate(("L", "RGB", "RGBA", "P", "CMYK")):
        path = tmp_path / "train" / "a" / f"{k}.{'jpg' if mode == 'CMYK' else 'png'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (50, 50, 50)).convert(mode).save(path)
    save_image(tmp_path / "val" / "a" / "0.png", 0)
    assert all(abs(value - 50) <= 3 for value in brightness(open_folder(tmp_path).train))


def test_grayscale_of_16_bits_keeps_its_brightness_and_floats_are_broken(tmp_path: Path) -> None:
    for k, value in enumerate((0, 10_000, 65_535)):
        path = tmp_path / "a" / f"{k}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((8, 8), value, dtype=np.uint16)).save(path)
    Image.fromarray(np.full((8, 8), 0.5, dtype=np.float32)).save(tmp_path / "a" / "3.tif")
    source = images_by_class(tmp_path, ("a",))
    fetched = source.fetch(np.arange(4), center_cut(Framing(8), 4))
    assert fetched.images[:, 2, 0, 0].tolist() == [0, 10_000 // 256, 255]
    assert [(broken.place, broken.reason) for broken in fetched.broken] == [
        (str(tmp_path / "a" / "3.tif"), "its pixels are floats, whose range is unknown")
    ]


def test_a_path_one_level_too_high_is_not_taken_for_a_set_of_one_class(tmp_path: Path) -> None:
    write_folders(tmp_path / "photos")
    with pytest.raises(RequestError, match="only one class, 'photos'.*too high"):
        open_data(f"folder:{tmp_path}")
    assert open_data(f"folder:{tmp_path / 'photos'}").classes == ("ant", "bee")


# ---------------------------------------------------------------------------------------------------- tiny imagenet


def test_tiny_imagenet_is_read_as_distributed(tmp_path: Path) -> None:
    for label, wnid in enumerate(("n01", "n02")):
        save_image(tmp_path / "train" / wnid / "images" / f"{wnid}_0.JPEG", 50 * label, (64, 64), "L")
    lines = []
    for k, wnid in enumerate(("n02", "n01", "n02")):
        save_image(tmp_path / "val" / "images" / f"val_{k}.JPEG", 100 + k, (64, 64))
        lines.append(f"val_{k}.JPEG\t{wnid}\t0\t0\t62\t62")
    (tmp_path / "val" / "val_annotations.txt").write_text("\n".join(lines))
    (tmp_path / "words.txt").write_text("n01\tgoldfish\nn02\tnewt\n")
    splits = open_tiny_imagenet(tmp_path)
    assert splits.classes == ("goldfish", "newt")
    assert splits.evaluation.labels.tolist() == [1, 0, 1]
    assert isinstance(splits.evaluation, InMemory)
    assert brightness(splits.train) == [0, 50]
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn99\n")
    with pytest.raises(RequestError, match="val_annotations.txt:1"):
        open_tiny_imagenet(tmp_path)


def test_a_broken_image_of_a_set_in_memory_is_left_out_with_its_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for split in ("train", "val"):
        for k in range(3):
            save_image(tmp_path / split / "n01" / f"{k}.png", k, (64, 64))
    (tmp_path / "train" / "n01" / "1.png").write_bytes(b"not an image")
    splits = open_tiny_imagenet(tmp_path)
    assert brightness(splits.train) == [0, 2]
    assert str(tmp_path / "train" / "n01" / "1.png") in caplog.text


# ---------------------------------------------------------------------------------------------------- matlab lists


def test_flowers_are_trained_on_train_and_val_and_evaluated_on_test(tmp_path: Path) -> None:
    for number in range(1, 7):
        save_image(tmp_path / "jpg" / f"image_{number:05d}.jpg", 10 * number)
    savemat(tmp_path / "imagelabels.mat", {"labels": np.array([[1, 2, 3, 1, 2, 102]])})
    savemat(tmp_path / "setid.mat", {"trnid": [[1, 3]], "valid": [[5]], "tstid": [[6, 2]]})
    splits = open_flowers102(tmp_path)
    assert splits.train.labels.tolist() == [0, 2, 1]
    assert splits.evaluation.labels.tolist() == [101, 1]
    assert brightness(splits.train) == [10, 30, 50]


def test_the_real_cut_of_flowers_is_read_out_of_its_archive(real_data: Path) -> None:
    flowers = open_data("flowers102")
    assert flowers.name == "flowers102[510+102]"
    assert np.bincount(flowers.train.labels).tolist() == [5] * 102
    fetched = flowers.train.fetch(np.array([0, 409]), center_cut(Framing(48), 2))
    assert fetched.images.shape == (2, 3, 48, 48)
    assert not fetched.broken


@pytest.mark.parametrize(
    ("labels", "splits", "message"),
    [
        ({"classes": [[1]]}, {}, "imagelabels.mat: has no 'labels'"),
        ({"labels": [[1, 2]]}, {"trnid": [[1]], "tstid": [[2]]}, "setid.mat: has no 'valid'"),
        ({"labels": [[1, 2]]}, {"trnid": [[1]], "valid": [[9]], "tstid": [[2]]}, "setid.mat: refers to images"),
        ({"labels": [[0, 2]]}, {"trnid": [[1]], "valid": [[2]], "tstid": [[2]]}, "a class is outside 1 to 102"),
    ],
)
def test_wrong_lists_of_flowers_are_refused(
    tmp_path: Path, labels: dict[str, object], splits: dict[str, object], message: str
) -> None:
    (tmp_path / "jpg").mkdir()
    savemat(tmp_path / "imagelabels.mat", labels)
    savemat(tmp_path / "setid.mat", splits)
    with pytest.raises(RequestError, match=message):
        open_flowers102(tmp_path)


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        (["fname", "class"], ("0.jpg", np.array([[3]])), "a class is outside 1 to 2"),
        (["fname", "bbox"], ("0.jpg", np.array([[1]])), "not a list of fname and class"),
    ],
)
def test_wrong_lists_of_cars_are_refused(
    tmp_path: Path, kind: list[str], row: tuple[object, ...], message: str
) -> None:
    (tmp_path / "devkit").mkdir()
    rows = np.zeros((1, 1), dtype=[(name, object) for name in kind])
    rows[0, 0] = row
    for name in ("devkit/cars_train_annos.mat", "cars_test_annos_withlabels.mat"):
        savemat(tmp_path / name, {"annotations": rows})
    savemat(tmp_path / "devkit" / "cars_meta.mat", {"class_names": np.array([["Audi", "BMW"]], dtype=object)})
    with pytest.raises(RequestError, match=message):
        open_cars(tmp_path)


def test_cars_are_read_from_the_lists_of_their_devkit(tmp_path: Path) -> None:
    (tmp_path / "devkit").mkdir()
    kind = [("fname", object), ("class", object)]
    for split, values in (("train", (10, 20)), ("test", (30, 40))):
        rows = np.zeros((1, 2), dtype=kind)
        for k, value in enumerate(values):
            save_image(tmp_path / f"cars_{split}" / f"{k}.jpg", value)
            rows[0, k] = (f"{k}.jpg", np.array([[2 - k]]))
        name = "devkit/cars_train_annos.mat" if split == "train" else "cars_test_annos_withlabels.mat"
        savemat(tmp_path / name, {"annotations": rows})
    savemat(tmp_path / "devkit" / "cars_meta.mat", {"class_names": np.array([["Audi", "BMW"]], dtype=object)})
    splits = open_cars(tmp_path)
    assert splits.classes == ("Audi", "BMW")
    assert splits.train.labels.tolist() == [1, 0]
    assert brightness(splits.evaluation) == [30, 40]


def test_a_file_that_is_not_of_matlab_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jpg").mkdir()
    (tmp_path / "imagelabels.mat").write_bytes(b"hello" * 100)
    with pytest.raises(RequestError, match="not a MATLAB 5 file"):
        open_flowers102(tmp_path)


# ---------------------------------------------------------------------------------------------------- shards, archives


def tar_of(path: Path, members: dict[str, bytes], mode: str = "w") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (value, value, value)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("pattern", ["{split}/{k}.tar", "w21-{split}-{k}.tar"])
def test_webdataset_shards_are_read_in_any_order(tmp_path: Path, pattern: str) -> None:
    for split, base in (("train", 0), ("val", 100)):
        for k in range(2):
            members = {}
            for j in range(2):
                members[f"{k}_{j}.cls"] = str(3 * k + j).encode()
                members[f"{k}_{j}.png"] = png(base + 10 * k + j)
            tar_of(tmp_path / pattern.format(split=split, k=k), members)
    assert has_shards(tmp_path)
    splits = open_shards(tmp_path)
    assert splits.train.labels.tolist() == [0, 1, 3, 4]
    assert len(splits.classes) == 5
    assert brightness(splits.evaluation) == [100, 101, 110, 111]
    assert open_data(f"imagenet-21k:{tmp_path}").name == "imagenet-21k"


WORDNET_IDS = ("n01440764", "n01443537")


def write_val_shards(root: Path, pattern: str = "val/{k}.tar") -> None:
    """Two shards of two images, whose classes are numbers."""
    for k in range(2):
        tar_of(root / pattern.format(k=k), {"a.png": png(k), "a.cls": b"0", "b.png": png(100 + k), "b.cls": b"1"})


@pytest.fixture
def _small_imagenet(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(SETS["imagenet-1k"], num_classes=2, size=(8, 4))
    monkeypatch.setattr("favor.data.names.SETS", {**SETS, "imagenet-1k": small})


@pytest.mark.usefixtures("_small_imagenet")
@pytest.mark.parametrize("pattern", ["val/{k}.tar", "imagenet1k-validation-{k}.tar"])
def test_an_evaluation_needs_no_shards_of_training_images(tmp_path: Path, pattern: str) -> None:
    write_val_shards(tmp_path, pattern)
    for name in ("imagenet-1k", "folder"):
        data = open_for_evaluation(f"{name}:{tmp_path}", ("0", "1"), whole=True)
        assert (data.name, data.classes, len(data.train)) == (name, ("0", "1"), 0)
        assert data.evaluation.labels.tolist() == [0, 1, 0, 1]
        assert brightness(data.evaluation) == [0, 100, 1, 101]
        with pytest.raises(RequestError, match="no shards in train/"):
            open_data(f"{name}:{tmp_path}")


@pytest.mark.usefixtures("_small_imagenet")
def test_the_numbered_classes_of_imagenet_s_shards_are_wordnet_ids_in_their_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_val_shards(tmp_path)
    numbered = ("0", "1")
    for name, wanted in {"imagenet-1k": ("ant", "bee"), "folder": WORDNET_IDS}.items():
        assert open_for_evaluation(f"{name}:{tmp_path}", wanted, whole=True).classes == numbered
    for wanted in (WORDNET_IDS[::-1], (*WORDNET_IDS, "n01484850")):
        assert open_for_evaluation(f"imagenet-1k:{tmp_path}", wanted, whole=True).classes == numbered
    assert not caplog.text
    assert open_for_evaluation(f"imagenet-1k:{tmp_path}", WORDNET_IDS, whole=True).classes == WORDNET_IDS
    assert "taking 0 to 1 for ImageNet's WordNet ids in their order, n01440764 to n01443537" in caplog.text


def test_the_archive_that_class_folders_were_unpacked_from_is_not_taken_for_a_shard(tmp_path: Path) -> None:
    write_folders(tmp_path, ("val",))
    for folder in (tmp_path, tmp_path / "val"):
        tar_of(folder / "ILSVRC2012_img_val.tar", {"0.png": png(0)})
    assert not has_shards(tmp_path)
    assert len(open_for_evaluation(f"folder:{tmp_path}", ("ant", "bee"), whole=True).evaluation) == 4


def test_an_image_without_a_class_is_refused(tmp_path: Path) -> None:
    tar_of(tmp_path / "train" / "0.tar", {"a.png": png(0), "a.cls": b"0", "b.png": png(1)})
    with pytest.raises(RequestError, match="b is an image without a class"):
        open_shards(tmp_path)
    tar_of(tmp_path / "train" / "0.tar", {"a.png": png(0), "a.cls": b"cat"})
    with pytest.raises(RequestError, match="not a class number"):
        open_shards(tmp_path)


def test_an_archive_is_unpacked_once_and_a_changed_one_again(tmp_path: Path) -> None:
    archive = tmp_path / "set.tar.xz"
    tar_of(archive, {"set/train/a/0.png": png(1), "set/val/a/0.png": png(2)}, "w:xz")
    first = unpacked(archive)
    assert (first / "train" / "a" / "0.png").is_file()
    assert unpacked(archive) == first
    tar_of(archive, {"other/train/a/0.png": png(3), "other/more": b"x"}, "w:xz")
    assert unpacked(archive) != first


def test_an_archive_that_writes_outside_of_its_folder_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "evil.tar"
    tar_of(archive, {"good.txt": b"x", "../../../escaped.txt": b"x"})
    with pytest.raises(RequestError, match="refused, it would write outside"):
        unpacked(archive)
    with pytest.raises(RequestError, match="refused"):  # nothing half unpacked is taken for the whole
        unpacked(archive)


def test_a_torn_archive_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "torn.tar.xz"
    tar_of(archive, {"a": bytes(range(256)) * 400}, "w:xz")
    archive.write_bytes(archive.read_bytes()[:-60])
    with pytest.raises(RequestError, match="truncated or not an archive"):
        unpacked(archive)


def test_an_archive_whose_checksum_is_wrong_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "set.tar.gz"
    tar_of(archive, {"a": bytes(range(256)) * 400}, "w:gz")
    content = bytearray(archive.read_bytes())
    content[-6] ^= 1  # within the checksum, which comes after all members
    archive.write_bytes(content)
    with pytest.raises(RequestError, match="truncated or not an archive .CRC check failed"):
        unpacked(archive)


def test_a_zip_file_is_unpacked_as_tiny_imagenet_is_distributed(tmp_path: Path) -> None:
    archive = tmp_path / "set.zip"
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("tiny-imagenet-200/train/", "")
        content.writestr("tiny-imagenet-200/train/n01/images/n01_0.png", png(1))
        content.writestr("tiny-imagenet-200/words.txt", "x")
    folder = unpacked(archive)
    assert (folder / "train" / "n01" / "images" / "n01_0.png").read_bytes() == png(1)
    archive.write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(RequestError, match="truncated or not an archive"):
        unpacked(archive)


@pytest.mark.parametrize("name", ["set/../../escaped.txt", "/escaped.txt"])
def test_a_zip_file_that_writes_outside_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as content:
        content.writestr(name, "x")
    with pytest.raises(RequestError, match="refused, it would write outside"):
        unpacked(tmp_path / "evil.zip")
    assert not list(tmp_path.rglob("escaped.txt"))


def test_links_and_devices_in_archives_are_refused(tmp_path: Path) -> None:
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
        with tarfile.open(tmp_path / "evil.tar", "w") as tar:
            info = tarfile.TarInfo("train")
            info.type, info.linkname = kind, "harmless"
            tar.addfile(info)
        with pytest.raises(RequestError, match="evil.tar: refused, 'train' is a link or a device"):
            unpacked(tmp_path / "evil.tar")
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as content:
        link = zipfile.ZipInfo("train")
        link.external_attr = 0o120777 << 16
        content.writestr(link, "/etc")
    with pytest.raises(RequestError, match="evil.zip: refused, 'train' is a link or a device"):
        unpacked(tmp_path / "evil.zip")


def test_a_tar_file_cannot_write_through_links_with_long_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2025-4517: beyond PATH_MAX, realpath stops following links, and a link through them leads outside."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    part, path = "d" * 247, ""
    short = "/".join("abcdefghijklmnop")
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:

        def add(name: str, kind: bytes, link: str = "", content: bytes = b"") -> None:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, link, len(content)
            tar.addfile(info, io.BytesIO(content))

        for letter in "abcdefghijklmnop":
            add(f"{path}{part}", tarfile.DIRTYPE)
            add(f"{path}{letter}", tarfile.SYMTYPE, part)
            path += f"{part}/"
        add(f"{short}/{'l' * 254}", tarfile.SYMTYPE, "../" * 16)
        add("escape", tarfile.SYMTYPE, f"{short}/{'l' * 254}/../../../..")
        add("escape/escaped.txt", tarfile.REGTYPE, content=b"x")
    with pytest.raises(RequestError, match="is a link or a device"):
        unpacked(tmp_path / "evil.tar")
    assert not list(tmp_path.rglob("escaped.txt"))


@pytest.mark.parametrize("ending", ["tar.xz", "tar.gz", "zip"])
def test_an_archive_that_unpacks_to_far_more_than_its_size_is_refused_unless_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    archive, zeros = tmp_path / f"bomb.{ending}", bytes(110_000_000)
    if ending == "zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as content:
            content.writestr("zeros", zeros)
    else:
        preset = {"preset": 0} if ending == "tar.xz" else {"compresslevel": 1}
        with tarfile.open(archive, f"w:{ending[4:]}", **preset) as tar:  # type: ignore[call-overload]
            info = tarfile.TarInfo("zeros")
            info.size = len(zeros)
            tar.addfile(info, io.BytesIO(zeros))
    with pytest.raises(RequestError, match=r"refused, it unpacks to more than 1\d\d MB.*set FAVOR_ALLOW_LARGE=1"):
        unpacked(archive)
    monkeypatch.setenv("FAVOR_ALLOW_LARGE", "1")
    assert (unpacked(archive) / "zeros").stat().st_size == len(zeros)


def test_an_archive_of_more_members_than_its_size_explains_is_refused(tmp_path: Path) -> None:
    tar_of(tmp_path / "many.tar.xz", {f"{k}": b"" for k in range(12_000)}, "w:xz")
    with pytest.raises(RequestError, match=r"refused, more than 10,\d+ members"):
        unpacked(tmp_path / "many.tar.xz")


def test_a_tar_file_with_a_torn_header_in_the_middle_is_not_taken_for_a_shorter_one(tmp_path: Path) -> None:
    tar_of(tmp_path / "set.tar", {"a": b"x", "b": b"y", "c": b"z"})
    content = bytearray((tmp_path / "set.tar").read_bytes())
    content[1024] ^= 1  # the name of b, of which the header's checksum knows
    (tmp_path / "set.tar").write_bytes(content)
    with pytest.raises(RequestError, match="truncated or not an archive .bad checksum at byte 1,024."):
        unpacked(tmp_path / "set.tar")
    (tmp_path / "set.tar").write_bytes(content[:1024])
    with pytest.raises(RequestError, match="truncated or not an archive .empty header at byte 1,024."):
        unpacked(tmp_path / "set.tar")


def test_an_error_of_an_archive_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "set.tar").write_bytes(b"hello" * 1000)
    with pytest.raises(RequestError) as refused:
        unpacked(tmp_path / "set.tar")
    assert "\n" not in str(refused.value)


def test_a_header_of_xz_that_asks_for_gigabytes_of_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**20}]
    content = bytearray(lzma.compress(bytes(20_480), filters=filters))
    assert content[16] == 16  # the size of the dictionary, 1 MiB
    content[16] = 39  # 3 GiB
    content[20:24] = zlib.crc32(content[12:20]).to_bytes(4, "little")
    (tmp_path / "set.tar.xz").write_bytes(content)
    with pytest.raises(RequestError, match="Memory usage limit exceeded"):
        unpacked(tmp_path / "set.tar.xz")


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tar_of(tmp_path / "set.tar", {"a": b"x"})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "set.tar"))
    with pytest.raises(WorkError, match="cannot be unpacked.*XDG_CACHE_HOME"):
        unpacked(tmp_path / "set.tar")


def test_a_cache_that_is_read_only_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tar_of(tmp_path / "set.tar", {"a": b"x"})
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/self")  # where even root cannot write
    with pytest.raises(WorkError, match="cannot be unpacked.*XDG_CACHE_HOME"):
        unpacked(tmp_path / "set.tar")
    with pytest.raises(WorkError, match="cifar10.*cannot be downloaded.*XDG_CACHE_HOME"):
        download.downloaded(SETS["cifar10"], lambda class_name, root: None)


# ---------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cifar", "did you mean 'cifar10'"),
        ("imagenet-2k", "did you mean .*'imagenet-1k'"),
        ("folder", "where are the images"),
        ("cifar10:", "no path after the colon"),
        ("digits:somewhere", "takes no path"),
        ("folder:not/there", "no such folder"),
    ],
)
def test_a_wrong_request_for_data_is_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        open_data(text)


def test_a_missing_set_says_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAVOR_DATA", str(tmp_path))
    with pytest.raises(RequestError, match=rf"not in {tmp_path}; put a folder stanford_cars"):
        open_data("cars")
    monkeypatch.delenv("FAVOR_DATA")
    with pytest.raises(RequestError, match=r"\$FAVOR_DATA, the folder of datasets, is not set"):
        open_data("cars")


def test_a_download_that_fails_says_why_and_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def no_network(class_name: str, root: Path) -> None:
        raise OSError("no route to host")

    with pytest.raises(RequestError, match="cifar-100.*the download failed: OSError: no route to host"):
        download.downloaded(SETS["cifar100"], no_network)


def test_a_download_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls: list[str] = []
    for _ in range(2):
        folder = download.downloaded(SETS["cifar10"], lambda class_name, root: calls.append(class_name))
    assert calls == ["CIFAR10"]
    assert folder.name == "cifar-10-batches-py"


def test_a_set_is_found_below_the_root_and_a_cut_of_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAVOR_DATA", str(tmp_path))
    (tmp_path / "cifar-10-batches-bin").mkdir()
    write_cifar10(tmp_path / "cifar-10-batches-bin", compressed=False)
    assert find(parse("cifar10")) == tmp_path / "cifar-10-batches-bin"
    assert open_data("cifar10").name == "cifar10[100+20]"


@pytest.mark.usefixtures("_small_imagenet")
def test_an_evaluation_needs_no_training_images_and_takes_the_whole_of_a_known_set_if_it_is_told(
    tmp_path: Path,
) -> None:
    for folder, splits in {"both": ("train", "val"), "val-only": ("val",), "unsplit": (".",)}.items():
        write_folders(tmp_path / folder, splits)

    def opened(folder: str, whole: bool, name: str = "imagenet-1k") -> tuple[str, int]:
        data = open_for_evaluation(f"{name}:{tmp_path / folder}", ("ant", "bee"), whole=whole)
        return data.name, len(data.evaluation)

    for whole in (True, False):
        assert opened("val-only", whole) == ("imagenet-1k", 4)
        assert opened("both", whole) == ("imagenet-1k[4+4]", 4)
    assert opened("unsplit", whole=True) == ("imagenet-1k", 4)
    assert opened("unsplit", whole=False) == ("imagenet-1k[2+2]", 2)  # as in a training
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for file in (tmp_path / "unsplit").rglob("*.png"):
            archive.write(file, file.relative_to(tmp_path))
    assert opened("photos.zip", whole=True, name="folder") == ("folder", 4)
    with pytest.raises(RequestError, match="has val/ but none of train"):
        open_data(f"imagenet-1k:{tmp_path / 'val-only'}")


def test_folders_with_another_number_of_classes_are_not_taken_for_a_known_set(tmp_path: Path) -> None:
    write_folders(tmp_path)
    with pytest.raises(RequestError, match="imagenet-1k has 1000 classes, but 2 were found"):
        open_data(f"imagenet-1k:{tmp_path}")
    assert open_data(f"folder:{tmp_path}").num_classes == 2
