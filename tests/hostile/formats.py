"""Every file that favor reads: how a right one is written, spoiled, and read. A new one is one more `Format` here."""

import copy
import gzip
import io
import json
import lzma
import pickle
import random
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from safetensors.torch import save
from scipy.io import savemat

from favor.data.broken import BrokenImages
from favor.data.cifar import open_cifar10
from favor.data.framing import Framing, center_cut
from favor.data.idx import open_fashion_mnist
from favor.data.in_memory import InMemory
from favor.data.matlab_lists import open_cars, open_flowers102
from favor.data.opening import open_data
from favor.data.shard_writing import LEAST_SHARD_BYTES, write_shards
from favor.data.sources import DataSet, Splits
from favor.data.tiny_imagenet import open_tiny_imagenet
from favor.records.csv_results import import_csv
from favor.records.result_file import ImportedFile
from favor.records.timm_results import import_timm, join_on_architecture
from favor.runtime.card import ExportCard, SelfTest, card_file, checksums, read_card
from favor.runtime.export import write_openvino
from favor.runtime.names import ENDINGS, OPENERS
from favor.runtime.opening import open_foreign
from favor.runtime.session import Choice
from favor.simulation.devices import device
from favor.study.allocation import allocations_of
from favor.study.cluster_queue import ClusterQueue
from favor.study.executor_file import save_executor, saved_executor
from favor.study.folder import save_requests, saved_requests
from favor.study.plan import jobs_of
from favor.study.resolved import ResolvedStudy
from favor.study.schema import executor_in
from favor.study.study_files import open_study
from favor.study.submission import Progress, ProgressFile, new_submission, submissions_of
from favor.trace.optimizer import create_optimizer, parameter_groups
from favor.training.checkpoint import newest_checkpoint, optimizer_state, restore_optimizer, save_checkpoint
from favor.training.initial_weights import start_from
from favor.training.predict import load_trained
from favor.training.preprocessing import carried_by
from favor.training.recipe import load_recipe
from favor.training.run_data import open_run_data, read_run_data, save_run_data
from favor.training.state import RunState, Survey, Trained
from favor.yaml_file import YamlFile
from favor.zoo.checkpoints import pushed_model
from favor.zoo.registry import create_model, load_plugin
from favor.zoo.weights import load_weights
from hostile.attacks import SAID, TARS, bomb_in_zip
from hostile.harness import Format
from hostile.spoil import (
    either,
    in_opcodes,
    in_png_chunks,
    in_safetensors_header,
    in_tar_headers,
    in_zip_members,
    replaced_by,
    spoiled_bytes,
    spoiled_text,
    under_compression,
    with_extended_headers,
)

_TINY_MODELS = Path(__file__).parent.parent / "training" / "tiny_models.py"

# ---------------------------------------------------------------------------------------------------- YAML


@cache
def _built_in(package: str, folder: str) -> tuple[bytes, ...]:
    found = sorted((files(package) / folder).iterdir(), key=lambda file: file.name)
    return tuple(file.read_bytes() for file in found if file.name.endswith(".yaml"))


_EXECUTORS = (
    b"",
    b"\nexecutor:\n  kind: slurm\n  partition: gpu\n  account: vision\n  nodes: 2\n  gpus_per_node: 4\n"
    b"  cpus_per_task: 8\n  memory: 64 GB\n  time_limit: 12 h\n  at_once: 3\n  extra: [--qos=high]\n",
    b"\nexecutor:\n  kind: ray\n  address: auto\n  gpus_per_node: 1\n  allocations: 8\n",
)


def _yaml(package: str, folder: str) -> Callable[[Path, random.Random], Sequence[Path]]:
    def write(into: Path, rng: random.Random) -> Sequence[Path]:
        text = rng.choice(_built_in(package, folder))
        text += rng.choice(_EXECUTORS) if folder == "built_in" else b""
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
    return join_on_architecture(_rows(import_timm(file)).records)


_RESULTS = (
    "model,dataset,top1,top1_low,top1_high,pipeline,img_size,epochs,seed,device,batch_size,throughput,params,source\n"
    "vit_s16,imagenet-1k,81.4,81.1,81.7,deit3,224,800,2,a100,64,2150,22e6,Table 4\n"
    "mine,imagenet-1k,82,,,mine,224,300,1,,,,,my run\n"
)


def _write_results(into: Path, rng: random.Random) -> Sequence[Path]:
    (into / "results.csv").write_text(_RESULTS)
    return [into / "results.csv"]


def _rows(imported: ImportedFile) -> ImportedFile:
    """The file as the command tells of it: each row that it skips on one line."""
    for skipped in imported.skipped:
        assert "\n" not in str(skipped)
        assert len(skipped.why) < 400
    return imported


# ---------------------------------------------------------------------------------------------------- clusters


def _write_executor(into: Path, rng: random.Random) -> Sequence[Path]:
    """What `favor run --executor` saves in the study's folder."""
    text = rng.choice(_EXECUTORS[1:]).decode()
    save_executor(into, executor_in(YamlFile("made up", text).content["executor"], "made up"))  # type: ignore[index, call-overload]
    return [into / "executor.yaml"]


def _write_submission(into: Path, rng: random.Random) -> Sequence[Path]:
    study = ResolvedStudy.model_validate_json(json.dumps(_REQUEST))
    made = new_submission(into, rng.choice(("slurm", "ray")), allocations_of(jobs_of(study), 2), repeats=False)
    progress = ProgressFile.of(into, made, 0)
    progress.write(Progress(node="n1", job=made.allocations[0][0], since="2026-11-17T14:00:00Z", step="latency"))
    (made.folder_in(into) / "7_0_log.err").write_text("srun: error: node n1\nRuntimeError: no space left\n")
    return [made.folder_in(into) / "submission.json", progress.file]


def _read_submission(folder: Path) -> object:
    """As `favor status` does, with a scheduler that knows nothing of it, and as the next submission does."""
    jobs = jobs_of(ResolvedStudy.model_validate_json(json.dumps(_REQUEST)))
    submissions = submissions_of(folder)
    queue = ClusterQueue(folder, submissions, {submission.name: {} for submission in submissions})
    found = [queue.find(job) for job in jobs]
    assert all(ProgressFile.of(folder, one, 0).file.parent.parent == folder / "cluster" for one in submissions)
    return found, new_submission(folder, "slurm", allocations_of(jobs, 2), repeats=False)


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
    inside = either(spoiled_bytes, in_opcodes, in_opcodes)
    return (either(spoiled_bytes, in_zip_members(inside)) if content.startswith(b"PK") else inside)(content, rng)


def _pushed() -> dict[str, bytes]:
    return {said[:60]: save({"a": torch.zeros(1)}, {"favor.trained": said}) for said in SAID}


def _read_pushed(folder: Path) -> object:
    """As `favor.create_model("hub:me/mine")` does once the file is downloaded."""
    with patch("favor.zoo.checkpoints.pushed_file", lambda address: str(folder / "my.safetensors")):
        return pushed_model("hub:me/mine")


def _write_checkpoint(into: Path, rng: random.Random) -> Sequence[Path]:
    """The pair of files that a training resumes from."""
    for file, content in _checkpoint().items():
        (into / file).write_bytes(content)
    return [into / file for file in _checkpoint()]


@cache
def _checkpoint() -> dict[str, bytes]:
    model, optimizer = _optimized()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    times = dict.fromkeys(("step_time", "end_to_end", "idle", "evaluation_time"), 1.0)
    bounds = dict.fromkeys(("step_time_low", "step_time_high", "end_to_end_low", "end_to_end_high"), 1.0)
    survey = Survey.model_validate({"accumulation": 1, "memory": 1, "memory_method": "", **times, **bounds})
    state = RunState(
        run="r", asked={"model": "tiny_vit"}, steps=9, step=1, survey=survey, optimizer=optimizer_state(optimizer)
    )
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), model, Trained.model_validate_json(_trained()), optimizer, state)
        return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}


def _optimized() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = copy.deepcopy(_tiny())
    return model, create_optimizer(parameter_groups(model, 0.05), "adamw", lr=1e-3)


def _read_checkpoint(folder: Path) -> object:
    found, _ = newest_checkpoint(folder)
    assert found is not None
    model, optimizer = _optimized()
    restore_optimizer(model, optimizer, found.state.optimizer, found.tensors)
    load_weights(model, found.weights, (found.trained.img_size,) * 2)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    return optimizer.step()


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


_IN_TAR = (with_extended_headers, replaced_by({name: tar for name, tar in TARS.items() if len(tar) < 2**22}))


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


@cache
def _indexed_shards() -> dict[str, bytes]:
    images = torch.arange(3 * 3 * 4 * 4).reshape(3, 3, 4, 4).to(torch.uint8)
    held = InMemory(images, np.array([0, 1, 0]))
    with tempfile.TemporaryDirectory() as folder:
        data = DataSet("folder", ("a", "b"), held, held, place="")
        write_shards(data, "folder", Path(folder), LEAST_SHARD_BYTES, BrokenImages(), lambda _: None)
        found = [file for file in sorted(Path(folder).rglob("*")) if file.is_file()]
        return {str(file.relative_to(folder)): file.read_bytes() for file in found}


def _write_indexed_shards(into: Path, rng: random.Random) -> Sequence[Path]:
    for name, content in _indexed_shards().items():
        (into / name).parent.mkdir(exist_ok=True)
        (into / name).write_bytes(content)
    return [into / name for name in _indexed_shards()]


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
            (into / name).write_bytes(pickle.dumps(content, rng.choice((2, 3, 4, 4))))
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


def _network() -> bytes:
    """A small network in ONNX: a convolution, a norm, a mean and a linear layer."""
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 32, 32])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 3])
    shapes = {"kernel": (4, 3, 8, 8), "scale": (4,), "shift": (4,), "weight": (3, 4), "bias": (3,)}
    arrays = [numpy_helper.from_array(np.full(shape, 0.1, np.float32), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["image", "kernel"], ["patches"], strides=[8, 8]),
        helper.make_node("Transpose", ["patches"], ["tokens"], perm=[0, 2, 3, 1]),
        helper.make_node("LayerNormalization", ["tokens", "scale", "shift"], ["normed"], epsilon=1e-6),
        helper.make_node("ReduceMean", ["normed"], ["mean"], axes=[1, 2], keepdims=0),
        helper.make_node("Gemm", ["mean", "weight", "bias"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(nodes, "network", [image], [logits], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@cache
def _exported(form: str) -> dict[str, bytes]:
    """The files of a network in the form of a runtime."""
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "my.onnx"
        graph.write_bytes(_network())
        if form == "openvino":
            write_openvino(graph, graph.with_suffix(ENDINGS[form]))
            graph.unlink()
        return {part.name: part.read_bytes() for part in sorted(Path(folder).iterdir())}


def _write_exported(form: str) -> Callable[[Path, random.Random], Sequence[Path]]:
    def write(into: Path, rng: random.Random) -> Sequence[Path]:
        for name, content in _exported(form).items():
            (into / name).write_bytes(content)
        return [into / name for name in _exported(form)]

    return write


def _read_exported(form: str) -> Callable[[Path], object]:
    """As `favor predict` does after it has compared the checksums of the card, which an attacker would make right."""

    def read(folder: Path) -> object:
        session = open_foreign(folder / f"my{ENDINGS[form]}", Choice(OPENERS[form], "fp32", "cpu", threads=1))
        return session.run(torch.zeros(1, 3, 32, 32))

    return read


def _write_run_data(folder: Path, rng: random.Random) -> list[Path]:
    for name in ("ant", "bee"):
        (folder / "photos" / name).mkdir(parents=True)
        for k in range(2):
            Image.new("RGB", (8, 8)).save(folder / "photos" / name / f"{k}.png")
    save_run_data(folder, f"folder:{folder / 'photos'}", open_data(f"folder:{folder / 'photos'}"))
    return [folder / "data.json"]


def _read_run_data(folder: Path) -> object:
    kept = read_run_data(folder)
    return kept and open_run_data(kept, ("ant", "bee"))


def _write_timm_config(folder: Path, rng: random.Random) -> list[Path]:
    (folder / "model.safetensors").write_bytes(b"weights")
    about = {"input_size": [3, 224, 224], "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "crop_pct": 0.9}
    config = {"architecture": "vit_tiny_patch16_224", "pretrained_cfg": about | {"interpolation": "bicubic"}}
    (folder / "config.json").write_text(json.dumps(config))
    return [folder / "config.json"]


def _read_timm_config(folder: Path) -> object:
    return load_recipe("transfer", carried_by(folder / "model.safetensors", "vit_ti16").keys)


FORMATS = (
    Format("study", _yaml("favor.study", "built_in"), spoiled_text, lambda folder: open_study(str(folder / "my.yaml"))),
    Format("study folder", _write_study_folder, spoiled_text, saved_requests),
    Format(
        "recipe", _yaml("favor.training", "recipes"), spoiled_text, lambda folder: load_recipe(str(folder / "my.yaml"))
    ),
    Format(
        "device", _yaml("favor.simulation", "devices"), spoiled_text, lambda folder: device(str(folder / "my.yaml"))
    ),
    Format("executor", _write_executor, spoiled_text, saved_executor),
    Format("submission", _write_submission, spoiled_text, _read_submission),
    Format("timm table", _write_table, spoiled_text, _read_table),
    Format("csv results", _write_results, spoiled_text, lambda folder: _rows(import_csv(folder / "results.csv"))),
    Format("safetensors", _write_safetensors, either(spoiled_bytes, in_safetensors_header), _read_safetensors),
    Format("pushed model", _write_safetensors, either(in_safetensors_header, replaced_by(_pushed())), _read_pushed),
    Format("checkpoint", _write_checkpoint, either(spoiled_bytes, in_safetensors_header), _read_checkpoint),
    Format("pth", _write_pth, _spoil_pth, lambda folder: _read_weights(folder / "my.pth")),
    Format("images", _write_images, either(spoiled_bytes, in_png_chunks), _read_folder),
    Format(
        "tar",
        _write_tar,
        either(spoiled_bytes, under_compression(either(spoiled_bytes, in_tar_headers, *_IN_TAR))),
        _read_archive,
    ),
    Format(
        "zip",
        _write_zip,
        either(spoiled_bytes, in_zip_members(spoiled_bytes), replaced_by({"a bomb": bomb_in_zip()})),
        _read_archive,
    ),
    Format("shards", _write_shards, either(spoiled_bytes, in_tar_headers, *_IN_TAR), _read_folder),
    Format("indexed shards", _write_indexed_shards, either(spoiled_bytes, spoiled_text), _read_folder),
    Format(
        "idx",
        _write_idx,
        either(spoiled_bytes, under_compression(spoiled_bytes)),
        lambda folder: _fetch_all(open_fashion_mnist(folder)),
    ),
    Format(
        "cifar",
        _write_cifar,
        either(spoiled_bytes, under_compression(spoiled_bytes), in_opcodes),
        lambda folder: _fetch_all(open_cifar10(folder)),
    ),
    Format(
        "tiny imagenet",
        _write_tiny_imagenet,
        either(spoiled_bytes, spoiled_text),
        lambda folder: _fetch_all(open_tiny_imagenet(folder)),
    ),
    Format("data of a run", _write_run_data, spoiled_text, _read_run_data),
    Format("config of timm", _write_timm_config, spoiled_text, _read_timm_config),
    Format("exported card", _write_card, spoiled_text, lambda folder: read_card(folder / "my.onnx")),
    Format("onnx", _write_exported("onnx"), spoiled_bytes, _read_exported("onnx")),
    Format("openvino", _write_exported("openvino"), either(spoiled_bytes, spoiled_text), _read_exported("openvino")),
    Format("matlab", _write_matlab, either(spoiled_bytes, under_compression(spoiled_bytes)), _read_matlab),
)
