"""Files of weights in PyTorch's own formats, checked before PyTorch reads them.

`torch.load(weights_only=True)` runs no foreign code, but it reserves memory, hashes and prints as a file asks for, and
a hundred bytes can ask for 64 GB or for hours. A state dict needs few of the functions that it allows.
"""

import io
import math
import os
import tarfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch

from favor.errors import RequestError, one_line, shown
from favor.plain_pickle import Known, Named, NotPickleError, NotPlainError, read_plain, require_key
from favor.regular_file import open_regular

_ZIP_START = b"PK\x03\x04"  # by which PyTorch recognizes its zip files
_MOST_PICKLED = 2**26
_MOST_DIMENSIONS = 64  # of PyTorch's tensors
_PICKLES = 5
"""In PyTorch's older format: a magic number, a version, the system, the weights, and the order of their bytes."""
_BYTES = {
    **{f"torch.{kind}Storage": 1 for kind in ("Byte", "Char", "Bool")},
    **{f"torch.{kind}Storage": 2 for kind in ("Half", "BFloat16", "Short")},
    **{f"torch.{kind}Storage": 4 for kind in ("Float", "Int")},
    **{f"torch.{kind}Storage": 8 for kind in ("Double", "Long", "ComplexFloat")},
    "torch.ComplexDoubleStorage": 16,
    "torch.storage.UntypedStorage": 1,
}
"""The types of storages and the bytes of an element."""


def check_pickled_weights(file: Path) -> None:
    """Refuse a file that has more than weights in it, or that would take much more memory than it has bytes."""
    with open_regular(file) as content:
        try:
            size = os.fstat(content.fileno()).st_size
            if content.read(len(_ZIP_START)) == _ZIP_START:
                _check_zip(content, size)
            else:
                _check_older(content, size)
        except NotPlainError as error:
            raise RequestError(
                f"{file}: a pickle with more than weights, which favor does not execute (it {error}); save its weights "
                "as safetensors"
            ) from error
        except (NotPickleError, RuntimeError, UnicodeDecodeError) as error:  # the last two of PyTorch's zip reader
            raise RequestError(
                f"{file}: cannot be read as weights; truncated, or another kind of file ({one_line(error)})"
            ) from error
        except _PackedError as error:
            raise RequestError(f"{file}: {error}") from error


class _PackedError(Exception):
    """A zip file with more content than bytes."""


def _check_zip(content: BinaryIO, size: int) -> None:
    content.seek(0)
    members = torch._C.PyTorchFileReader(content)
    unpacked = sum(map(members.get_record_size, members.get_all_records()))
    if unpacked > size:  # PyTorch compresses nothing, and would unpack it all
        raise _PackedError(f"unpacks to {unpacked:,} bytes, more than the file has; save the weights again")
    storages = _Storages(size, lambda key: members.get_record_size(f"data/{key}"))
    read_plain(io.BytesIO(members.get_record("data.pkl")), _WEIGHTS, storages.find)


def _check_older(content: BinaryIO, size: int) -> None:
    content.seek(0)
    pickled = content.read(min(size, _MOST_PICKLED))
    if _is_tar(pickled[: tarfile.BLOCKSIZE]):  # PyTorch gives it to Python's reader, before it refuses it
        raise NotPlainError("is a tar file of PyTorch 0.1")
    pickles, storages = io.BytesIO(pickled), _Storages(size, lambda key: size)
    for _ in range(_PICKLES):
        read_plain(pickles, _WEIGHTS, storages.find)


def _is_tar(start: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(start, "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True


@dataclass(frozen=True)
class _Storage:
    """Stands for the bytes of tensors; `most` is the number of elements that a tensor of them may claim."""

    most: int


@dataclass(frozen=True)
class _Tensor:
    """Stands for a tensor."""


class _Namespace:
    """Stands for the arguments of a training script."""

    def set_state(self, state: object) -> None:
        if not isinstance(state, dict):
            raise NotPlainError(f"describes attributes by {shown(state)}")


class _Settings(dict[object, object]):
    """Stands for a dict that may have attributes, as a state dict has its `_metadata`."""

    def set_state(self, state: object) -> None:
        if not isinstance(state, dict):
            raise NotPlainError(f"describes a dict by {shown(state)}")
        for name in state:
            if hasattr(OrderedDict, str(name)):  # whoever asks the dict for its `items` would get the file's
                raise NotPlainError(f"replaces {shown(name)} of a dict")


class _Storages:
    """The storages of a file. Together they may not have more bytes than it."""

    def __init__(self, size: int, size_of: Callable[[str], int]) -> None:
        self._size, self._left, self._size_of = size, size, size_of
        self._found: set[tuple[str, int]] = set()

    def find(self, identity: object) -> _Storage:
        match identity:
            case ("storage", Named(kind), str(key), str(), int(count), *_) if kind in _BYTES and key.isascii():
                needed = count * _BYTES[kind]
                if (key, needed) not in self._found:
                    self._found.add((key, needed))
                    self._left -= needed
                if count < 0 or self._left < 0 or needed > self._size_of(key):
                    raise NotPlainError(f"has {needed:,} bytes of weights in a smaller place")
                return _Storage(self._size // _BYTES[kind])
        raise NotPlainError(f"keeps {shown(identity)} outside of it")


def _tensor(arguments: tuple[object, ...]) -> _Tensor:
    match arguments:
        case (_Storage(most), int(), tuple(shape), tuple(strides), *_) if _are_integers((*shape, *strides)):
            # Strides of zero let ten bytes claim a tensor of any size.
            if len(shape) > _MOST_DIMENSIONS or math.prod(shape) > most:
                raise NotPlainError(f"has a tensor of shape {shown(shape)}, which is larger than the file")
            return _Tensor()
    raise NotPlainError("makes a tensor from something else than a storage")


def _parameter(arguments: tuple[object, ...]) -> _Tensor:
    if not arguments or not isinstance(arguments[0], _Tensor):
        raise NotPlainError("makes a parameter from something else than a tensor")
    return _Tensor()


def _settings(arguments: tuple[object, ...]) -> _Settings:
    """A dict from another one, or from pairs, as Python 2 wrote an OrderedDict."""
    made, given = _Settings(), arguments[0] if arguments else ()
    if len(arguments) > 1 or not isinstance(given, dict | list | tuple):
        raise NotPlainError("makes a dict from something else than pairs")
    for pair in given.items() if isinstance(given, dict) else given:
        match pair:
            case (key, value) if not isinstance(pair, str):
                made[require_key(key)] = value
            case _:
                raise NotPlainError("makes a dict from something else than pairs")
    return made


def _counts(arguments: tuple[object, ...]) -> _Settings:
    """A Counter from a dict: it would count pairs, by their hashes, which may all be the same."""
    if any(not isinstance(given, dict) for given in arguments):
        raise NotPlainError("counts something else than a dict")
    return _settings(arguments)


def _namespace(arguments: tuple[object, ...]) -> _Namespace:
    if arguments:
        raise NotPlainError("calls argparse.Namespace with arguments")
    return _Namespace()


def _size(arguments: tuple[object, ...]) -> tuple[object, ...]:
    match arguments:
        case (tuple(sizes),) if _are_integers(sizes):
            return sizes
    raise NotPlainError("makes a size from something else than integers")


def _device(arguments: tuple[object, ...]) -> str:
    if not all(isinstance(part, str | int) for part in arguments):
        raise NotPlainError("makes a device from something else than its name")
    return "device"


def _bytes(arguments: tuple[object, ...]) -> bytes:
    """Bytes as Python 3 writes them for Python 2."""
    match arguments:
        case (str(text), "latin1" | "latin-1"):
            return text.encode("latin1")
    raise NotPlainError("encodes something else than bytes")


def _are_integers(values: tuple[object, ...]) -> bool:
    return all(type(value) is int for value in values)


_WEIGHTS: Known = {
    **dict.fromkeys(_BYTES),
    **{str(kind): None for kind in vars(torch).values() if isinstance(kind, torch.dtype)},
    **{f"torch._utils._rebuild_tensor{version}": _tensor for version in ("", "_v2", "_v3")},
    "torch._utils._rebuild_parameter": _parameter,
    "torch.Size": _size,
    "torch.device": _device,
    "collections.OrderedDict": _settings,
    "collections.Counter": _counts,
    "argparse.Namespace": _namespace,  # in the checkpoints of the training scripts of timm, DeiT and others
    "_codecs.encode": _bytes,
}
"""What PyTorch's pickles of state dicts and of optimizers use."""
