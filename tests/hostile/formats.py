"""Every file that favor reads: how a right one is written, spoiled, and read. A new one is one more `Format` here."""

import gzip
import io
import json
import lzma
import pickle
import random
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save
from scipy.io import savemat

from favor.data.cifar import open_cifar10
from favor.data.framing import Framing, center_cut
from favor.data.idx import open_fashion_mnist
from favor.data.matlab_lists import open_cars, open_flowers102
from favor.data.opening import open_data
from favor.data.sources import Splits
from favor.data.tiny_imagenet import open_tiny_imagenet
from favor.records.timm_results import import_timm, join_on_architecture
from favor.runtime.card import ExportCard, SelfTest, card_file, checksums, read_card
from favor.simulation.devices import device
from favor.study.folder import save_requests, saved_requests
from favor.study.resolved import ResolvedStudy
from favor.study.study_files import open_study
from favor.training.initial_weights import start_from
from favor.training.predict import load_trained
from favor.training.recipe import load_recipe
from favor.zoo.registry import create_model, load_plugin
from hostile.harness import Format
from hostile.spoil import (
    either,
    in_png_chunks,
    in_safetensors_header,
    in_tar_headers,
    in_zip_members,
    spoiled_bytes,
    spoiled_text,
    under_compression,
)

_TINY_MODELS = Path(__file__).parent.parent / "training" / "tiny_models.py"

# ---------------------------------------------------------------------------------------------------- YAML


@cache
def _built_in(package: str, folder: str) -> tuple[bytes, ...]:
    found = sorted((files(package) / folder).iterdir(), key=lambda file: file.name)
    return tuple(file.read_bytes() for file in found if file.name.endswith(".yaml"))


def _yaml(package: str, folder: str) -> Callable[[Path, random.Random], Sequence[Path]]:
    def write(into: Path, rng: random.Random) -> Sequence[Path]:
        text = rng.choice(_built_in(package, folder))
        # A device of one's own may not have the name of one that is built in.
        (into / "my.yaml").write_bytes(text.replace(b"name: ", b"name: my-", 1) if folder == "devices" else text)
        return [into / "my.yaml"]

    return write


_REQUEST = {
    "name": "mine",
    "models": [{"name": "vit_s16", "how": "baseline", "img_sizes": [224, 384]}],
    "plugins": [],
    "num_classes": 1000,
    "phases": ["count", "inference"],
    "precisions": ["fp32"],
    "batch_size": {"inference": "best", "training": 16},
    "energy": True,
    "machine": {"device": "cpu", "label": "cpu", "device_name": "a CPU", "torch": "2.15.0", "threads": 2},
    "train": None,
    "budget": {"measurement": "20.0 s", "total": None},
    "report": {"dataset": "imagenet-1k"},
}


def _write_study_folder(into: Path, rng: random.Random) -> Sequence[Path]:
    save_requests(into, [ResolvedStudy.model_validate_json(json.dumps(_REQUEST))])
    return [into / "study.yaml"]


# ---------------------------------------------------------------------------------------------------- tables

_TABLES = {
    "results-imagenet.csv": "model,img_size,top1,top1_err,top5,top5_err,param_count,crop_pct,interpolation\n"
    "resnet50.a1_in1k,224,80.1,19.9,95.2,4.8,25.56,0.95,bicubic\nvit_small_patch16_224.augreg_in1k,224,78.8,21.2,94.3,5.7,22.05,0.9,bicubic\n",
    "benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv": "model,infer_samples_per_sec,infer_step_time,infer_batch_size,"
    "infer_img_size,infer_gmacs,infer_macts,param_count\nresnet50,2500.1,400.0,1024,224,4.11,11.11,25.56\n"
    'vit_huge_patch14_224,"1,013.01",900.0,1024,224,167.4,139.41,"1,632.05"\n',
    "benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv": "model,train_samples_per_sec,train_step_time,train_batch_size,"
    "train_img_size,param_count\nresnet50,700.2,90.0,256,224,25.56\n",
}


def _write_table(into: Path, rng: random.Random) -> Sequence[Path]:
    name = rng.choice(list(_TABLES))
    (into / name).write_text(_TABLES[name])
    return [into / name]


def _read_table(folder: Path) -> object:
    (file,) = folder.iterdir()
    return join_on_architecture(import_timm(file).records)


# ---------------------------------------------------------------------------------------------------- weights


@cache
def _tiny() -> torch.nn.Module:
    load_plugin(_TINY_MODELS)
    return create_model("tiny_vit", num_classes=3, img_size=(32, 32))


@cache
def _trained() -> str:
    recipe = load_recipe("laptop-digits").model_dump(mode="json")
    known = {"favor": "0", "run": "r", "step": 1, "epochs": 1.0, "model": "tiny_vit", "img_size": 32, "in_chans": 3}
    known |= {"classes": ["a", "b", "c"], "dataset": "digits", "pretraining": "none", "recipe": recipe, "top1": 50.0}
    return json.dumps(known)


def _write_safetensors(into: Path, rng: random.Random) -> Sequence[Path]:
    header = {"favor.trained": _trained()} if rng.random() < 0.7 else {"format": "pt"}
    (into / "my.safetensors").write_bytes(save(_tiny().state_dict(), header))
    return [into / "my.safetensors"]


def _read_safetensors(folder: Path) -> object:
    file = folder / "my.safetensors"
    _read_weights(file)
    if b"favor.trained" in file.read_bytes()[:4096]:
        load_trained(file, torch.device("cpu"))
    return None


def _write_pth(into: Path, rng: random.Random) -> Sequence[Path]:
    content: object = dict(_tiny().state_dict())
    content = rng.choice((content, {"state_dict": content, "epoch": 3}, {"model": content}))
    torch.save(content, into / "my.pth", _use_new_zipfile_serialization=rng.random() < 0.8)
    return [into / "my.pth"]


def _read_weights(file: Path) -> object:
    _tiny()
    return start_from(file, "tiny_vit").give_weights(_tiny(), ("a", "b", "c"))


def _spoil_pth(content: bytes, rng: random.Random) -> bytes:
    whole = spoiled_bytes if not content.startswith(b"PK") else either(spoiled_bytes, in_zip_members(spoiled_bytes))
    return whole(content, rng)


# ---------------------------------------------------------------------------------------------------- images

_SIDE = 16
_FORMATS = (
    "PNG",
    "PNG",
    "JPEG",
    "JPEG",
    "GIF",
    "BMP",
    "TIFF",
    "WEBP",
    "PPM",
    "EPS",
    "AVIF",
    "DDS",
    "ICO",
    "TGA",
    "PCX",
)


def _image(rng: random.Random, form: str, side: int = _SIDE) -> bytes:
    image = Image.frombytes("RGB", (side, side), rng.randbytes(3 * side * side))
    into = io.BytesIO()
    if form == "TIFF":
        image.save(into, form, compression=rng.choice((None, "tiff_lzw", "tiff_adobe_deflate", "packbits")))
    else:
        image.convert(rng.choice(("L", "P", "RGB")) if form in ("PNG", "TIFF") else "RGB").save(into, form)
    return into.getvalue()


def _write_images(into: Path, rng: random.Random) -> Sequence[Path]:
    found = []
    for name in ("train/a/0.jpg", "train/b/0.png", "val/a/0.jpg", "val/b/0.tif"):
        (into / name).parent.mkdir(parents=True)
        (into / name).write_bytes(_image(rng, rng.choice(_FORMATS)))
        found.append(into / name)
    return found


def _fetch_all(splits: Splits) -> object:
    sources = (splits.train, splits.evaluation)
    return [
        source.fetch(np.arange(len(source))[:50], center_cut(Framing(8), min(50, len(source)))) for source in sources
    ]


def _read_folder(folder: Path) -> object:
    return _fetch_all(open_data(f"folder:{folder}"))  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- archives


def _members(rng: random.Random) -> dict[str, bytes]:
    return {f"set/{split}/{label}/0.png": _image(rng, "PNG", 4) for split in ("train", "val") for label in "ab"}


def _write_tar(into: Path, rng: random.Random) -> Sequence[Path]:
    ending = rng.choice(("", ".gz", ".xz"))
    path = into / f"set.tar{ending}"
    options = {".gz": {"compresslevel": 1}, ".xz": {"preset": 0}}.get(ending, {})
    form = rng.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT))
    with tarfile.open(path, f"w:{ending[1:]}", format=form, **options) as tar:  # type: ignore[call-overload]
        for name, content in _members(rng).items():
            info = tarfile.TarInfo(name if form == tarfile.USTAR_FORMAT or rng.random() < 0.8 else name + "x" * 150)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        if rng.random() < 0.3:
            info = tarfile.TarInfo(rng.choice(("link", "set/train/c", "../x", "/tmp/x")))  # noqa: S108 - an attack
            info.type = rng.choice(
                (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE)
            )
            info.linkname = rng.choice(("/etc", "../../..", "set/train/a/0.png", "link"))
            tar.addfile(info)
    return [path]


def _write_zip(into: Path, rng: random.Random) -> Sequence[Path]:
    path = into / "set.zip"
    kind = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(path, "w", kind) as content:
        for name, member in _members(rng).items():
            content.writestr(name, member)
        if rng.random() < 0.3:
            info = zipfile.ZipInfo(rng.choice(("link", "../x", "/x", "set/train/a", "c:\\x", "a/" * 200)))
            info.external_attr = rng.choice((0o120777, 0o100644, 0o010644, 0)) << 16
            content.writestr(info, "/etc")
    return [path]


def _read_archive(folder: Path) -> object:
    (file,) = folder.iterdir()
    return _fetch_all(open_data(f"folder:{file}"))  # type: ignore[arg-type]


def _write_shards(into: Path, rng: random.Random) -> Sequence[Path]:
    found = []
    for split in ("train", "val"):
        with tarfile.open(into / f"{split}-0.tar", "w") as tar:
            for key in range(2):
                for ending, content in (("png", _image(rng, "PNG", 4)), ("cls", str(key).encode())):
                    info = tarfile.TarInfo(f"{key}.{ending}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
        found.append(into / f"{split}-0.tar")
    return found


# ---------------------------------------------------------------------------------------------------- sets in memory


def _write_idx(into: Path, rng: random.Random) -> Sequence[Path]:
    found, compressed = [], rng.random() < 0.5
    for prefix in ("train", "t10k"):
        for name, shape in (("images-idx3", (2, 28, 28)), ("labels-idx1", (2,))):
            sizes = b"".join(length.to_bytes(4, "big") for length in shape)
            content = (
                bytes([0, 0, 8, len(shape)]) + sizes + bytes(rng.randrange(10) for _ in range(int(np.prod(shape))))
            )
            path = into / f"{prefix}-{name}-ubyte{'.gz' if compressed else ''}"
            path.write_bytes(gzip.compress(content, 1) if compressed else content)
            found.append(path)
    return found


def _write_cifar(into: Path, rng: random.Random) -> Sequence[Path]:
    names, kind = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"], rng.choice(("bin", "xz", "pickle"))
    for name in names:
        labels, pixels = [rng.randrange(10) for _ in range(2)], [rng.randbytes(3072) for _ in range(2)]
        records = b"".join(bytes([label]) + image for label, image in zip(labels, pixels, strict=True))
        if kind == "pickle":
            array = np.frombuffer(b"".join(pixels), dtype=np.uint8).reshape(2, 3072)
            content = {b"data": array, b"labels": labels, b"filenames": [b"a.png", b"b.png"]}
            (into / name).write_bytes(pickle.dumps(content, rng.choice((0, 2, 4))))
        elif kind == "bin":
            (into / f"{name}.bin").write_bytes(records)
        else:
            (into / f"{name}.bin.xz").write_bytes(lzma.compress(records, preset=0))
    if kind == "pickle":
        (into / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"c%d" % k for k in range(10)]}, 2))
    else:
        (into / "batches.meta.txt").write_text("\n".join(f"class{k}" for k in range(10)) + "\n")
    return sorted(into.iterdir())


def _write_tiny_imagenet(into: Path, rng: random.Random) -> Sequence[Path]:
    for name in ("train/n01/images/0.JPEG", "train/n02/images/0.JPEG", "val/images/0.JPEG"):
        (into / name).parent.mkdir(parents=True)
        (into / name).write_bytes(_image(rng, "JPEG", 64))
    (into / "val" / "images" / "1.JPEG").write_bytes(_image(rng, "JPEG", 64))
    (into / "val" / "val_annotations.txt").write_text("0.JPEG\tn01\t0\t0\t63\t63\n1.JPEG\tn02\t0\t0\t63\t63\n")
    (into / "words.txt").write_text("n01\ttench, Tinca tinca\nn02\tgoldfish\n")
    lists = [into / "words.txt", into / "val" / "val_annotations.txt"]
    return lists if rng.random() < 0.7 else [file for file in sorted(into.rglob("*")) if file.is_file()]


def _write_flowers(into: Path, rng: random.Random) -> None:
    (into / "jpg").mkdir()
    for number in range(1, 5):
        (into / "jpg" / f"image_{number:05d}.jpg").write_bytes(_image(rng, "JPEG"))
    kind = rng.choice((np.uint8, np.uint16, np.float64))
    compressed = rng.random() < 0.3
    savemat(into / "imagelabels.mat", {"labels": np.array([[1, 2, 3, 102]], dtype=kind)}, do_compression=compressed)
    parts = {"trnid": [[1]], "valid": [[2]], "tstid": [[3, 4]]}
    savemat(
        into / "setid.mat",
        {key: np.array(value, dtype=kind) for key, value in parts.items()},
        do_compression=compressed,
    )


def _write_cars(into: Path, rng: random.Random) -> None:
    compressed = rng.random() < 0.3
    for split, path in (("train", "devkit/cars_train_annos.mat"), ("test", "cars_test_annos_withlabels.mat")):
        rows = np.zeros((1, 2), dtype=[("bbox_x1", object), ("class", object), ("fname", object)])
        (into / f"cars_{split}").mkdir()
        (into / "devkit").mkdir(exist_ok=True)
        for k in range(2):
            (into / f"cars_{split}" / f"{k}.jpg").write_bytes(_image(rng, "JPEG"))
            rows[0, k] = (np.array([[30]], dtype=np.uint16), np.array([[2 - k]], dtype=np.uint8), f"{k}.jpg")
        savemat(into / path, {"annotations": rows}, do_compression=compressed)
    names = np.array([["Audi", "BMW 1 Series"]], dtype=object)
    savemat(into / "devkit" / "cars_meta.mat", {"class_names": names}, do_compression=compressed)


def _write_matlab(into: Path, rng: random.Random) -> Sequence[Path]:
    rng.choice((_write_flowers, _write_cars))(into, rng)
    return sorted(into.rglob("*.mat"))


def _read_matlab(folder: Path) -> object:
    return _fetch_all((open_flowers102 if (folder / "jpg").is_dir() else open_cars)(folder))


def _write_card(into: Path, rng: random.Random) -> Sequence[Path]:
    """The card beside an exported file; the file itself is told apart by its checksum."""
    file = into / "my.onnx"
    file.write_bytes(rng.randbytes(20))
    test = SelfTest(data="digits", images=9, largest_deviation=1e-6, relative_deviation=1e-7, top1_agreement=100.0)
    card = ExportCard(
        favor="0",
        sha256=checksums(file),
        format="onnx",
        precision="fp32",
        dynamic_batch=True,
        model="vit_xs4",
        img_size=32,
        in_chans=3,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        crop_ratio=1.0,
        num_classes=2,
        classes=("cat", "dog"),
        dataset="digits",
        epochs=1.0,
        source="best.safetensors of run a, step 1",
        calibration=None,
        versions={"onnx": "1"},
        self_test=test,
    )
    card_file(file).write_text(card.model_dump_json(indent=2))
    return [card_file(file)]


FORMATS = (
    Format("study", _yaml("favor.study", "built_in"), spoiled_text, lambda folder: open_study(str(folder / "my.yaml"))),
    Format("study folder", _write_study_folder, spoiled_text, saved_requests),
    Format(
        "recipe", _yaml("favor.training", "recipes"), spoiled_text, lambda folder: load_recipe(str(folder / "my.yaml"))
    ),
    Format(
        "device", _yaml("favor.simulation", "devices"), spoiled_text, lambda folder: device(str(folder / "my.yaml"))
    ),
    Format("timm table", _write_table, spoiled_text, _read_table),
    Format("safetensors", _write_safetensors, either(spoiled_bytes, in_safetensors_header), _read_safetensors),
    Format("pth", _write_pth, _spoil_pth, lambda folder: _read_weights(folder / "my.pth")),
    Format("images", _write_images, either(spoiled_bytes, in_png_chunks), _read_folder),
    Format(
        "tar",
        _write_tar,
        either(spoiled_bytes, under_compression(either(spoiled_bytes, in_tar_headers))),
        _read_archive,
    ),
    Format("zip", _write_zip, either(spoiled_bytes, in_zip_members(spoiled_bytes)), _read_archive),
    Format("shards", _write_shards, either(spoiled_bytes, in_tar_headers), _read_folder),
    Format(
        "idx",
        _write_idx,
        either(spoiled_bytes, under_compression(spoiled_bytes)),
        lambda folder: _fetch_all(open_fashion_mnist(folder)),
    ),
    Format(
        "cifar",
        _write_cifar,
        either(spoiled_bytes, under_compression(spoiled_bytes)),
        lambda folder: _fetch_all(open_cifar10(folder)),
    ),
    Format(
        "tiny imagenet",
        _write_tiny_imagenet,
        either(spoiled_bytes, spoiled_text),
        lambda folder: _fetch_all(open_tiny_imagenet(folder)),
    ),
    Format("exported card", _write_card, spoiled_text, lambda folder: read_card(folder / "my.onnx")),
    Format("matlab", _write_matlab, either(spoiled_bytes, under_compression(spoiled_bytes)), _read_matlab),
)
