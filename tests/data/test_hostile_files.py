"""Files of datasets that were made to hang, crash or mislead: each is refused, or left out, with its reason."""

import gzip
import io
import os
import pickle
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import loadmat, savemat

from data.made_up import cifar_records, save_image
from favor.data.cifar import open_cifar10, unpickled_arrays
from favor.data.folder import images_by_class, open_folder
from favor.data.framing import Framing, center_cut
from favor.data.idx import open_fashion_mnist
from favor.data.image_files import FolderPlaces
from favor.data.matlab_file import read_matlab
from favor.data.matlab_lists import open_cars, open_flowers102
from favor.data.opening import open_data
from favor.data.shards import open_shards
from favor.data.tiny_imagenet import open_tiny_imagenet
from favor.errors import RequestError, WorkError
from hostile.harness import read_alone

# ---------------------------------------------------------------------------------------------------- images


def reasons(folder: Path) -> list[str]:
    """Why the images of a folder are broken."""
    source = images_by_class(folder, ("a",))
    return [one.reason for one in source.fetch(np.arange(len(source)), center_cut(Framing(8), len(source))).broken]


def encoded(form: str, size: tuple[int, int] = (8, 8)) -> bytes:
    into = io.BytesIO()
    Image.new("RGB", size).save(into, form)
    return into.getvalue()


def test_a_postscript_file_among_the_images_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\n")
    (tmp_path / "bin" / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    (tmp_path / "set" / "a").mkdir(parents=True)
    (tmp_path / "set" / "a" / "photo.jpg").write_bytes(encoded("EPS"))
    assert reasons(tmp_path / "set") == [NOT_AN_IMAGE]
    assert not (tmp_path / "started").exists()


NOT_AN_IMAGE = "not an image in one of the formats JPEG, PNG, WEBP, BMP, TIFF, PPM, GIF"
HEIC_OR_AVIF = "a HEIC or AVIF image, which favor cannot read; convert it to JPEG"


@pytest.mark.parametrize("form", ["AVIF", "DDS", "ICO", "TGA"])
def test_an_image_in_a_format_that_is_not_listed_is_broken_whatever_its_name(tmp_path: Path, form: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "photo.jpg").write_bytes(encoded(form))
    assert reasons(tmp_path) == [HEIC_OR_AVIF if form == "AVIF" else NOT_AN_IMAGE]


def test_one_long_name_does_not_make_the_others_as_long() -> None:
    names = ["x" * 4096, *(f"{number}.png" for number in range(200_000))]

    def read(_: Path) -> None:
        places = FolderPlaces(Path("set"), names)
        assert [places.name(sample) for sample in (1, 200_000)] == ["set/0.png", "set/199999.png"]
        assert places.relative == names

    assert read_alone(lambda into: None, read, megabytes=200) == ("accepted", "")


def test_an_error_of_a_format_s_own_is_a_broken_image_and_ends_no_training(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    texture = bytearray(encoded("DDS"))
    texture[80] = 0  # no kind of pixels, which raises NotImplementedError
    (tmp_path / "a" / "0.jpg").write_bytes(texture)
    (tmp_path / "a" / "1.jpg").write_bytes(encoded("AVIF").replace(b"pitm", b"xitm"))
    assert reasons(tmp_path) == [NOT_AN_IMAGE, HEIC_OR_AVIF]


def test_pipes_and_devices_among_the_images_are_broken_images(tmp_path: Path) -> None:
    save_image(tmp_path / "a" / "0.png", 1)
    os.mkfifo(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "2.png").symlink_to("/dev/zero")
    (tmp_path / "a" / "3.png").symlink_to(tmp_path / "nowhere")
    device = "this is a folder, a pipe or a device, not a regular file"
    assert reasons(tmp_path) == [device, device, "there is no such file"]


def test_an_image_of_168_megapixels_is_broken_and_not_decoded(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.new("1", (14_000, 12_000)).save(tmp_path / "a" / "0.png")
    assert reasons(tmp_path) == ["14000 x 12000 pixels; 168 megapixels exceed the limit of 89"]


def test_an_image_so_thin_that_its_square_would_take_gigabytes_is_broken(tmp_path: Path) -> None:
    save_image(tmp_path / "a" / "0.png", 1, (60_000, 1))
    source = images_by_class(tmp_path, ("a",))
    (broken,) = source.fetch(np.arange(1), center_cut(Framing(224), 1)).broken
    assert broken.reason == "13440000 x 224 pixels; 3,011 megapixels exceed the limit of 89"


@pytest.mark.parametrize(("scans", "are_many"), [(50, False), (150, True)])
def test_a_jpeg_whose_scans_would_take_minutes_is_broken(tmp_path: Path, scans: int, are_many: bool) -> None:
    into = io.BytesIO()
    Image.new("RGB", (64, 64)).save(into, "JPEG", progressive=True)
    whole = into.getvalue()
    last = whole[whole.rindex(b"\xff\xda") : -2]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.jpg").write_bytes(whole[:-2] + last * scans + whole[-2:])
    assert reasons(tmp_path) == (["a JPEG of more than 100 scans"] if are_many else [])
    (tmp_path / "a" / "0.jpg").write_bytes(whole + b"video \xff\xda" * 200)  # as phones append one
    assert reasons(tmp_path) == []


def test_a_reason_is_one_line_and_names_the_file_without_its_control_characters(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x\n\x1b[2J.png").write_bytes(encoded("PNG")[:40])
    source = images_by_class(tmp_path, ("a",))
    (broken,) = source.fetch(np.arange(1), center_cut(Framing(8), 1)).broken
    assert broken.place.isprintable()
    assert broken.reason.isprintable()


@pytest.mark.parametrize("name", [b"b\xff", b"b\nc", b"\x1b[2J"])
def test_a_folder_whose_name_is_no_text_cannot_be_a_class(tmp_path: Path, name: bytes) -> None:
    save_image(tmp_path / "train" / "a" / "0.png", 1)
    (tmp_path / "train" / os.fsdecode(name)).mkdir()
    (tmp_path / "val" / "a").mkdir(parents=True)
    with pytest.raises(RequestError, match="is not a valid class name; rename it") as refused:
        open_folder(tmp_path)
    assert str(refused.value).isprintable()


def test_a_path_that_the_system_does_not_take_is_refused() -> None:
    with pytest.raises(RequestError, match="no such folder or file"):
        open_data("folder:" + "x" * 5000)


def test_the_home_of_a_user_who_is_not_there_is_refused() -> None:
    with pytest.raises(RequestError, match="dataset 'folder:~nosuchuser/x': .*; write the whole path"):
        open_data("folder:~nosuchuser/x")


def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("favor.data.class_folders.os.scandir", refuse)
    with pytest.raises(WorkError, match=r"dataset folder:.*Permission denied"):
        open_data(f"folder:{tmp_path}")


# ---------------------------------------------------------------------------------------------------- shards


def shard(path: Path, label: bytes) -> None:
    with tarfile.open(path, "w") as tar:
        for name, content in (("0.png", encoded("PNG")), ("0.cls", label)):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize("label", [b"9" * 5000, b"999999999999", b"100000"])
def test_a_class_of_an_absurd_number_is_refused(tmp_path: Path, label: bytes) -> None:
    shard(tmp_path / "train.tar", label)
    shard(tmp_path / "val.tar", b"1")
    with pytest.raises(RequestError, match="not a class number below 100,000"):
        open_shards(tmp_path)


def test_a_shard_with_a_torn_header_is_refused_and_not_taken_for_a_shorter_one(tmp_path: Path) -> None:
    shard(tmp_path / "train.tar", b"1")
    content = bytearray((tmp_path / "train.tar").read_bytes())
    content[1024] ^= 1
    (tmp_path / "train.tar").write_bytes(content)
    with pytest.raises(RequestError, match="truncated or not a plain tar file .bad checksum"):
        open_shards(tmp_path)


# ---------------------------------------------------------------------------------------------------- idx, CIFAR


def test_an_idx_file_whose_shape_overflows_is_refused(tmp_path: Path) -> None:
    for prefix in ("train", "t10k"):
        (tmp_path / f"{prefix}-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + b"\x80\0\0\0" * 2 + b"\0\0\0\x04")
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\0")
    with pytest.raises(RequestError, match="16 bytes do not fit the shape"):
        open_fashion_mnist(tmp_path)


def test_an_idx_file_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(2**27), 1))
    with pytest.raises(RequestError, match="more than 67 MB unpacked"):
        open_fashion_mnist(tmp_path)


def write_cifar(root: Path) -> None:
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        (root / f"{name}.bin").write_bytes(cifar_records(10, 1, 10).tobytes())


@pytest.mark.parametrize(
    ("names", "message"), [(b"\xff\xfe", "not a text file in UTF-8"), (b"\x1b[2J", "is not a valid class name")]
)
def test_names_of_classes_that_are_no_text_are_refused(tmp_path: Path, names: bytes, message: str) -> None:
    write_cifar(tmp_path)
    (tmp_path / "batches.meta.txt").write_bytes(names)
    with pytest.raises(RequestError, match=message):
        open_cifar10(tmp_path)


def test_a_pickle_that_makes_python_reserve_gigabytes_takes_none(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"\x80\x02}r\xff\xff\xff\x3f.")  # remembers a dict as number 2^30
    assert unpickled_arrays(tmp_path / "bad") == {}


def test_a_label_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        content = {b"data": np.zeros((1, 3072), dtype=np.uint8), b"labels": [10**30]}
        (tmp_path / name).write_bytes(pickle.dumps(content))
    with pytest.raises(RequestError, match="label 10{30} is out of range for 10 classes"):
        open_cifar10(tmp_path)


# ---------------------------------------------------------------------------------------------------- Tiny ImageNet


def write_tiny(root: Path) -> None:
    for name in ("train/n01/0.JPEG", "train/n02/0.JPEG", "val/images/0.JPEG"):
        save_image(root / name, 9, (64, 64))
    (root / "val" / "val_annotations.txt").write_text("0.JPEG\tn01\n")
    (root / "words.txt").write_text("n01\ttench\n")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("words.txt", b"n01\tt\xff\n", "words.txt: not a text file in UTF-8 .line 1, byte 5."),
        ("words.txt", b"n01\t\x1b[2J\n", "words.txt: .* is not a valid class name"),
        ("val/val_annotations.txt", b"0.JPEG\tn01\n\xff", "not a text file in UTF-8 .line 2, byte 11."),
        ("val/val_annotations.txt", b"/dev/zero\tn01\n", "names '/dev/zero', which is not a file in it"),
        ("val/val_annotations.txt", b"../../x\tn01\n", "names '../../x', which is not a file in it"),
        ("val/val_annotations.txt", b"x" * 9000 + b"\tn01\n", "which is not a file in it"),
        ("val/val_annotations.txt", b"y" * 9000, "val_annotations.txt:1: not a file name and one of the 2 classes"),
    ],
)
def test_wrong_lists_of_tiny_imagenet_are_refused(tmp_path: Path, file: str, content: bytes, message: str) -> None:
    write_tiny(tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(RequestError, match=message) as refused:
        open_tiny_imagenet(tmp_path)
    assert len(str(refused.value)) < 500


def test_an_image_of_another_size_in_a_set_in_memory_is_refused_even_as_the_first(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    save_image(tmp_path / "train" / "n01" / "0.JPEG", 9, (3000, 2000))
    with pytest.raises(RequestError, match="3000 x 2000 pixels where the images of this set have 64 x 64"):
        open_tiny_imagenet(tmp_path)


# ---------------------------------------------------------------------------------------------------- MATLAB


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", ["u1", "u2", "i4", "f4", "f8", "i8"])
def test_numbers_are_read_as_scipy_reads_them(tmp_path: Path, kind: str, compressed: bool) -> None:
    numbers = np.arange(200, dtype=kind)[None]
    savemat(tmp_path / "a.mat", {"other": [[1]], "labels": numbers, "x": "text"}, do_compression=compressed)
    read = read_matlab(tmp_path / "a.mat", "labels").numbers
    assert read is not None
    assert read.tolist() == loadmat(tmp_path / "a.mat")["labels"].ravel().tolist() == numbers.ravel().tolist()


@pytest.mark.parametrize("compressed", [False, True])
def test_texts_cells_and_structs_are_read_as_scipy_reads_them(tmp_path: Path, compressed: bool) -> None:
    rows = np.zeros((1, 3), dtype=[("class", object), ("fname", object)])
    for k, name in enumerate(("a.jpg", "é\u0153.jpg", "c.jpg")):
        rows[0, k] = (np.array([[k]], dtype=np.uint8), name)
    cells = np.array([["Audi", "Škoda 1"]], dtype=object)
    savemat(tmp_path / "a.mat", {"annotations": rows, "names": cells}, do_compression=compressed)
    structs = read_matlab(tmp_path / "a.mat", "annotations").structs
    assert structs is not None
    ours = [(row["fname"].text, row["class"].numbers.tolist()) for row in structs]  # type: ignore[union-attr]
    theirs = loadmat(tmp_path / "a.mat")["annotations"].ravel()
    assert ours == [(str(row["fname"].item()), row["class"].ravel().tolist()) for row in theirs]
    assert [cell.text for cell in read_matlab(tmp_path / "a.mat", "names").cells or ()] == ["Audi", "Škoda 1"]


def test_the_authors_lists_of_flowers_are_read_as_scipy_reads_them(real_data: Path, tmp_path: Path) -> None:
    with tarfile.open(real_data / "flowers-102-mini-192.tar.xz") as tar:
        for member in tar:
            if member.name.endswith(".mat"):
                (tmp_path / Path(member.name).name).write_bytes(tar.extractfile(member).read())  # type: ignore[union-attr]
    for file, keys in (("imagelabels.mat", ["labels"]), ("setid.mat", ["trnid", "valid", "tstid"])):
        theirs = loadmat(tmp_path / file)
        for key in keys:
            ours = read_matlab(tmp_path / file, key).numbers
            assert ours is not None
            assert ours.tolist() == theirs[key].ravel().tolist()


def test_every_single_wrong_byte_of_a_matlab_file_is_read_or_refused(tmp_path: Path) -> None:
    rows = np.zeros((1, 1), dtype=[("class", object), ("fname", object)])
    rows[0, 0] = (np.array([[1]], dtype=np.uint8), "a.jpg")
    savemat(tmp_path / "a.mat", {"annotations": rows})
    right = (tmp_path / "a.mat").read_bytes()
    refused = []
    for at in range(124, len(right)):
        for value in (0, 0x0F, 0x80, 0xFF):
            (tmp_path / "a.mat").write_bytes(right[:at] + bytes([value]) + right[at + 1 :])
            try:
                read_matlab(tmp_path / "a.mat", "annotations")
            except RequestError as error:
                refused.append(str(error))
    assert len(refused) > len(right)
    assert all(line.isprintable() for line in refused)


def test_numbers_that_are_not_whole_are_no_labels(tmp_path: Path) -> None:
    (tmp_path / "jpg").mkdir()
    for labels in ([[1.5]], [[np.nan]], [[np.inf]], [[1e300]], [["one"]]):
        savemat(tmp_path / "imagelabels.mat", {"labels": labels})
        with pytest.raises(
            RequestError, match="imagelabels.mat: 'labels' (has numbers that are not integers|is not a list)"
        ):
            open_flowers102(tmp_path)


def test_a_list_of_cars_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "devkit").mkdir()
    rows = np.zeros((1, 1), dtype=[("class", object), ("fname", object)])
    rows[0, 0] = (np.array([[1]]), "../../etc/passwd")
    for name in ("devkit/cars_train_annos.mat", "cars_test_annos_withlabels.mat"):
        savemat(tmp_path / name, {"annotations": rows})
    savemat(tmp_path / "devkit" / "cars_meta.mat", {"class_names": np.array([["Audi", "BMW"]], dtype=object)})
    with pytest.raises(RequestError, match="names '../../etc/passwd', which is not a file in it"):
        open_cars(tmp_path)


def element(kind: int, data: bytes) -> bytes:
    """An element of a MATLAB file."""
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def save_compressed(path: Path, matrix: bytes) -> None:
    header = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    packed = zlib.compress(matrix)
    path.write_bytes(header + struct.pack("<II", 15, len(packed)) + packed)


def test_a_matlab_array_of_many_dimensions_is_refused_before_they_are_multiplied(tmp_path: Path) -> None:
    dimensions = struct.pack("<i", 2**31 - 1) * 2**19
    matrix = element(6, struct.pack("<II", 6, 0)) + element(5, dimensions) + element(1, b"labels")
    save_compressed(tmp_path / "a.mat", element(14, matrix))
    with pytest.raises(RequestError, match="an array of 524288 dimensions"):
        read_matlab(tmp_path / "a.mat", "labels")


def cell(name: bytes, count: int, parts: bytes) -> bytes:
    shape = struct.pack("<ii", 1, count)
    return element(14, element(6, struct.pack("<II", 1, 0)) + element(5, shape) + element(1, name) + parts)


@pytest.mark.parametrize("cells_of", [(250_000,), (1_000, 1_000)], ids=["in one array", "in arrays of arrays"])
def test_a_matlab_file_of_a_few_kilobytes_cannot_become_a_million_arrays(tmp_path: Path, cells_of: tuple[int]) -> None:
    *outer, inner = cells_of
    matrix = cell(b"labels" if not outer else b"", inner, element(14, b"") * inner)
    for count in outer:
        matrix = cell(b"labels", count, matrix * count)
    save_compressed(tmp_path / "a.mat", matrix)
    assert (tmp_path / "a.mat").stat().st_size < 50_000
    with pytest.raises(RequestError, match="a variable of more than 200,000 parts"):
        read_matlab(tmp_path / "a.mat", "labels")


def test_a_struct_of_a_million_fields_is_refused_before_they_are_named(tmp_path: Path) -> None:
    names = element(5, struct.pack("<I", 1)) + element(1, b"x" * 10**6)
    matrix = element(6, struct.pack("<II", 2, 0)) + element(5, struct.pack("<ii", 1, 0)) + element(1, b"labels") + names
    save_compressed(tmp_path / "a.mat", element(14, matrix))
    with pytest.raises(RequestError, match="a struct of more than 1,000 fields"):
        read_matlab(tmp_path / "a.mat", "labels")


def test_the_variables_of_a_matlab_file_are_limited_together(tmp_path: Path) -> None:
    matrix = element(6, struct.pack("<II", 6, 0)) + element(5, struct.pack("<ii", 1, 0)) + element(1, b"other")
    save_compressed(tmp_path / "a.mat", element(14, matrix + element(2, bytes(2**25))))
    content = (tmp_path / "a.mat").read_bytes()
    (tmp_path / "a.mat").write_bytes(content + content[128:] * 3)
    with pytest.raises(RequestError, match="variables of more than 67 MB"):
        read_matlab(tmp_path / "a.mat", "labels")
