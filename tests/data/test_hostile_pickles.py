"""CIFAR's pickles: what hashes, compares or prints what a file describes can take for ever, so nothing does."""

import io
import pickle
from pathlib import Path

import numpy as np
import pytest

from data.made_up import cifar_records
from favor.data.cifar import open_cifar10, open_cifar100, unpickled_arrays
from favor.errors import RequestError, shown
from favor.plain_pickle import NotPickleError, NotPlainError, read_plain
from hostile.attacks import PICKLES, as_pickle, pair_of_pairs
from hostile.harness import read_alone

BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


@pytest.mark.parametrize("attack", PICKLES.values(), ids=PICKLES.keys())
def test_a_pickle_that_describes_more_than_it_has_is_refused(attack: bytes) -> None:
    def write(into: Path) -> None:
        for name in (*BATCHES, "batches.meta"):
            (into / name).write_bytes(as_pickle(attack))

    outcome, told = read_alone(write, open_cifar10, 4.0, 100)
    assert outcome == "refused", told


def test_names_of_classes_that_are_no_names_are_not_printed() -> None:
    names = b"}X\x0b\0\0\0label_names](" + pair_of_pairs() * 10 + b"es"

    def write(into: Path) -> None:
        write_pickled(into, 4)
        (into / "batches.meta").write_bytes(as_pickle(names))

    outcome, told = read_alone(write, open_cifar10, 4.0, 100)
    assert outcome == "refused", told
    assert "batches.meta" in told


def write_pickled(root: Path, protocol: int, label: int = 7) -> None:
    for name in BATCHES:
        content = {b"data": np.zeros((1, 3072), dtype=np.uint8), b"labels": [label], b"filenames": [b"0.png"]}
        (root / name).write_bytes(pickle.dumps(content, protocol))


@pytest.mark.parametrize("digits", [100, 5000])
def test_a_label_of_any_length_is_refused_in_one_line(tmp_path: Path, digits: int) -> None:
    write_pickled(tmp_path, 4, 10**digits)
    with pytest.raises(RequestError, match="is out of range for 10 classes") as refused:
        open_cifar10(tmp_path)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_batches_of_cifar100_that_python_3_wrote_are_read(tmp_path: Path, protocol: int, order: str) -> None:
    records = cifar_records(100, 2, 100)
    pixels = np.array(records[:, 2:], order=order)  # type: ignore[call-overload]
    content = {"data": pixels, b"fine_labels": records[:, 1].tolist(), "coarse_labels": records[:, 0].tolist()}
    for name in ("train", "test"):
        (tmp_path / name).write_bytes(pickle.dumps(content, protocol))
    names = [f"c{number}" for number in range(100)]
    (tmp_path / "meta").write_bytes(pickle.dumps({"fine_label_names": names, "coarse_label_names": ["x", "x"]}, 4))
    splits = open_cifar100(tmp_path)
    assert splits.train.labels.tolist() == records[:, 1].tolist()
    assert splits.train.images.numpy().reshape(100, -1).tolist() == pixels.tolist()  # type: ignore[union-attr]
    assert splits.classes == tuple(names)


def cifar100_of_python_2(pixels: bytes, fine: list[int], coarse: list[int]) -> bytes:
    """What cPickle of Python 2 wrote with protocol 2: texts are bytes, and what is made is remembered."""

    def text(content: bytes, number: int) -> bytes:
        return b"U" + bytes([len(content)]) + content + b"q" + bytes([number])

    def labels(key: bytes, values: list[int], number: int) -> bytes:
        return (
            text(key, number)
            + b"]q"
            + bytes([number + 1])
            + b"("
            + b"".join(b"K" + bytes([value]) for value in values)
            + b"e"
        )

    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x40cnumpy\nndarray\nq\x41K\0\x85U\x01bq\x42\x87Rq\x43"
    kind = b"cnumpy\ndtype\nq\x44U\x02u1K\0K\x01\x87Rq\x45(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    shape = b"K" + bytes([len(fine)]) + b"M\x00\x0c\x86"
    rows = array + b"(K\x01" + shape + kind + b"\x89T" + len(pixels).to_bytes(4, "little") + pixels + b"q\x46tb"
    return (
        b"\x80\x02}q\x01("
        + text(b"filenames", 2)
        + b"]q\x03("
        + b"".join(text(b"a_s_00000%d.png" % number, 16 + number) for number in range(len(fine)))
        + b"e"
        + text(b"batch_label", 4)
        + text(b"training batch 1 of 1", 5)
        + labels(b"fine_labels", fine, 6)
        + labels(b"coarse_labels", coarse, 8)
        + text(b"data", 10)
        + rows
        + b"u."
    )


def test_batches_of_cifar100_as_their_authors_distribute_them_are_read(tmp_path: Path) -> None:
    records = cifar_records(3, 2, 100)
    content = cifar100_of_python_2(records[:, 2:].tobytes(), records[:, 1].tolist(), records[:, 0].tolist())
    assert pickle.loads(content, encoding="latin1")["data"].tolist() == records[:, 2:].tolist()  # noqa: S301 - our own
    for name in ("train", "test"):
        (tmp_path / name).write_bytes(content)
    splits = open_cifar100(tmp_path)
    assert splits.train.labels.tolist() == records[:, 1].tolist()
    assert splits.train.images.numpy().reshape(3, -1).tolist() == records[:, 2:].tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", [(-1, -6), (2, 2), (10**30, 1), (6,), (2, "3")])
def test_an_array_whose_shape_does_not_fit_its_bytes_is_refused(tmp_path: Path, shape: tuple[object, ...]) -> None:
    array = b"cnumpy.core.multiarray\n_reconstruct\n)R("
    kind = b"cnumpy\ndtype\nU\x02u1\x85R"
    state = pickle.dumps(shape, 2)[2:-1]
    (tmp_path / "bad").write_bytes(as_pickle(b"}U\x04data" + array + b"K\x01" + state + kind + b"\x89U\x06abcdeftbs"))
    with pytest.raises(RequestError, match="bytes for an array of shape|an array that is not a table of bytes"):
        unpickled_arrays(tmp_path / "bad")


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, b"x", "y" * 500], b"b": ((), (1,), {}), 3: {"c": [[]]}},
        [1, -1, 255, 256, 65535, 65536, -(2**31), 2**31, 2**70, -(2**200)],
        ["again"] * 5,
    ],
)
@pytest.mark.parametrize("protocol", [3, 4])
def test_plain_data_are_read_as_python_reads_them(value: object, protocol: int) -> None:
    assert read_plain(io.BytesIO(pickle.dumps(value, protocol)), {}) == value


@pytest.mark.parametrize("body", [b"", b"]", b"a", b"h\1", b"t", b"K", b"(1", b"}]\x85s", b"U\5ab", b"q\0"])
def test_what_is_no_pickle_is_told_apart_from_what_does_too_much(body: bytes) -> None:
    with pytest.raises((NotPickleError, NotPlainError)):
        read_plain(io.BytesIO(b"\x80\x02" + body), {})


def deep(levels: int) -> object:
    value: object = ()
    for _ in range(levels):
        value = (value, value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        deep(60),
        {"key": deep(60)},
        [[[[]]]] * 10**6,
        10**5000,
        -(10**5000),
        "x" * 10**7,
        b"\xff" * 10**7,
        [10**5000] * 99,
    ],
    ids=range(8),
)
def test_what_an_error_shows_of_a_value_is_short_and_quick_whatever_the_value_is(value: object) -> None:
    assert 0 < len(shown(value)) <= 200


@pytest.mark.parametrize(
    "value", [(), (1,), [1, "a"], {"a": (1, 2), 3: None}, "it's", b"\0", 10**30, 1.5, True, {1}, Path("x")]
)
def test_what_an_error_shows_of_a_short_value_is_its_repr(value: object) -> None:
    assert shown(value) == repr(value)
