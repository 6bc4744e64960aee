"""Files of weights as pickles: those that PyTorch writes pass, those that ask for more than they have are refused."""

import argparse
import io
import pickle
import random
import struct
import zipfile
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import pytest
import timm
import torch
from torch import nn

from favor.errors import RequestError
from favor.zoo.pickled_weights import check_pickled_weights
from hostile.attacks import PICKLES, as_pickle, extended_header, pax_line
from hostile.harness import read_alone

# Plain data, without weights; what reads them then says so.
HARMLESS = ("a key that is no Unicode", "an integer of 5,000 digits")
ATTACKS = {name: attack for name, attack in PICKLES.items() if name not in HARMLESS}


def in_zip(pickled: bytes, storage: bytes = b"") -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        archive.writestr("w/data.pkl", pickled)
        archive.writestr("w/byteorder", "little")
        archive.writestr("w/data/a", storage)
        archive.writestr("w/version", "3\n")
    return into.getvalue()


def in_older_format(pickled: bytes) -> bytes:
    before = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    return b"".join(pickle.dumps(part, 2) for part in before) + pickled + pickle.dumps([], 2)


@pytest.mark.parametrize("form", [in_zip, in_older_format])
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_a_pickle_that_describes_more_than_it_has_is_refused(attack: bytes, form: type) -> None:
    def write(into: Path) -> None:
        (into / "weights.pth").write_bytes(form(as_pickle(attack)))

    outcome, told = read_alone(write, lambda folder: check_pickled_weights(folder / "weights.pth"), 4.0, 100)
    assert outcome == "refused", told
    assert "weights.pth: a pickle with more than weights, which favor does not execute" in told


def of_new_kinds() -> dict[str, torch.Tensor]:
    return {str(kind): torch.ones(3).to(kind) for kind in (torch.float8_e4m3fn, torch.uint16)}


def a_training() -> dict[str, object]:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    optimizer = torch.optim.AdamW([{"params": [weight], "lr": 0.1} for weight in model.parameters()], betas=[0.9, 0.99])
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 3, 5])
    model(torch.zeros(2, 3, 4, 4)).sum().backward()
    optimizer.step()
    state = model.state_dict()
    about = argparse.Namespace(lr=0.1, mean=(0.5, 0.5, 0.5), names=["a", "b"], more={"a": None})
    kept = {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(), "args": about, "epoch": 3}
    return {"state_dict": state, "state_dict_ema": state, "rng": torch.get_rng_state(), "arch": "x", **kept}


KINDS = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool),
)


def tensors() -> dict[str, object]:
    """One of each type, with parameters, views and shared storages among them."""
    whole = torch.arange(12.0).reshape(3, 4)
    found: dict[str, object] = {str(kind): torch.ones(3).to(kind) for kind in KINDS}
    return found | {
        "whole": whole,
        "part": whole[1:, ::2],
        "transposed": whole.T,
        "parameter": nn.Parameter(whole),
        "frozen": nn.Parameter(whole, requires_grad=False),
        "empty": torch.empty(0, 4),
        "number": torch.tensor(3),
        "bytes": b"abc",
        "size": whole.shape,
        "device": torch.device("cuda", 0),
        "dtype": torch.bfloat16,
    }


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    "make",
    [lambda: timm.create_model("resnet18").state_dict(), a_training, tensors, nn.LSTM(2, 3).state_dict, OrderedDict],
    ids=["a network", "a training", "types", "an LSTM", "nothing"],
)
def test_what_pytorch_writes_passes(tmp_path: Path, make: type, zipped: bool) -> None:
    torch.save(make(), tmp_path / "weights.pth", _use_new_zipfile_serialization=zipped)
    check_pickled_weights(tmp_path / "weights.pth")
    with torch.serialization.safe_globals([argparse.Namespace]):
        torch.load(tmp_path / "weights.pth", weights_only=True)


def test_weights_of_python_2_whose_dict_is_made_of_pairs_pass(tmp_path: Path) -> None:
    pairs = b"ccollections\nOrderedDict\n](](U\x01aK\x01e](U\x01bK\x02ee\x85R"
    (tmp_path / "weights.pth").write_bytes(in_older_format(as_pickle(pairs)))
    check_pickled_weights(tmp_path / "weights.pth")
    for wrong in (b"](](", b"](U\x02abe\x85R", b"](](]K\x01ee\x85R"):
        (tmp_path / "weights.pth").write_bytes(in_older_format(as_pickle(b"ccollections\nOrderedDict\n" + wrong)))
        with pytest.raises(RequestError, match="weights.pth: "):
            check_pickled_weights(tmp_path / "weights.pth")


def storage(key: bytes, count: int, kind: bytes = b"FloatStorage") -> bytes:
    """Opcodes for the numbers of a tensor."""
    name = b"X" + struct.pack("<I", len(key)) + key
    return (
        b"(X\7\0\0\0storagectorch\n" + kind + b"\n" + name + b"X\3\0\0\0cpu\x8a\6" + count.to_bytes(6, "little") + b"tQ"
    )


@pytest.mark.parametrize(
    "stored",
    [
        storage(b"a", 101),
        storage(b"a", 2**40),
        storage(b"a", 2**47 + 1),
        storage(b"a", 51, b"DoubleStorage"),
        b"(" + b"".join(storage(key, 100) for key in (b"a", b"A", b"./a", b"a ")) * 2 + b"t",
        b"X\1\0\0\0aQ",
        pickle.dumps(("storage", "FloatStorage", "a", "cpu", 4), 2)[2:-1] + b"Q",
    ],
    ids=["one more", "2^40", "below zero", "doubles", "one record under many names", "a text", "a type that is a text"],
)
def test_numbers_that_the_file_does_not_have_are_refused(tmp_path: Path, stored: bytes) -> None:
    (tmp_path / "weights.pth").write_bytes(in_zip(as_pickle(stored), bytes(400)))
    with pytest.raises(RequestError, match="weights.pth: (a pickle with more than weights|cannot be read as weights)"):
        check_pickled_weights(tmp_path / "weights.pth")
    (tmp_path / "weights.pth").write_bytes(in_zip(as_pickle(storage(b"a", 100)), bytes(400)))
    check_pickled_weights(tmp_path / "weights.pth")


def test_a_file_that_is_also_a_tar_file_is_refused_before_python_reads_it_as_one(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(2)}, tmp_path / "weights.pth", _use_new_zipfile_serialization=False)
    check_pickled_weights(tmp_path / "weights.pth")
    (tmp_path / "weights.pth").write_bytes(extended_header(pax_line("path", "x")) + bytes(2000))
    with pytest.raises(RequestError, match="it is a tar file"):
        check_pickled_weights(tmp_path / "weights.pth")


def test_a_zip_file_whose_parts_are_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    whole = in_zip(as_pickle(b"}"))
    for content in (
        whole[:-5],
        whole.replace(b"data.pkl", b"data.qkl"),
        whole.replace(b"version", b"\xff\xfe\xfdsion"),
    ):
        (tmp_path / "weights.pth").write_bytes(content)
        with pytest.raises(RequestError, match="cannot be read as weights"):
            check_pickled_weights(tmp_path / "weights.pth")


def test_a_file_that_passes_is_one_that_pytorch_reads_or_refuses_with_an_error(tmp_path: Path) -> None:
    torch.save(a_training(), tmp_path / "right.pth")
    with zipfile.ZipFile(tmp_path / "right.pth") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    rng, passed = random.Random(0), 0  # noqa: S311 - to be repeated, not to be secret
    for _ in range(200):
        changed = dict(members)
        pickled = bytearray(changed["right/data.pkl"])
        pickled[rng.randrange(len(pickled))] = rng.randrange(256)
        with zipfile.ZipFile(tmp_path / "changed.pth", "w") as archive:
            for name, content in (changed | {"right/data.pkl": bytes(pickled)}).items():
                archive.writestr(name, content)
        with suppress(RequestError):
            check_pickled_weights(tmp_path / "changed.pth")
            passed += 1
            # Whatever else PyTorch raises is an error of this file, which `start_from` tells.
            with suppress(Exception):
                torch.load(tmp_path / "changed.pth", weights_only=True)
    assert 20 < passed < 180
