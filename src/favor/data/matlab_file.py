"""MATLAB 5 files, as far as image lists need them: numbers, strings, cells and structs.

The layout is in "MAT-File Format" (MathWorks). Every length is checked against the available bytes, since readers
that trust them crash on one wrong byte.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from favor.errors import RequestError, one_line
from favor.regular_file import read_regular

MOST_BYTES = 2**26
"""The largest list, that of Stanford Cars, has 0.5 MB."""

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""The storage types of numbers, which may be smaller than their types in MATLAB."""
_TEXT_ENCODINGS = {1: "latin1", 2: "latin1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_CELL, _STRUCT, _CHAR = 1, 2, 4
_NUMERIC = range(6, 16)
_COMPLEX = 0x800
_DEEPEST = 8
_MOST_DIMENSIONS = 8
_MOST_PARTS = 200_000
"""In one variable. Stanford Cars, the largest of these lists, has 49,000 fields in a struct."""
_MOST_FIELDS = 1_000


class _TornError(Exception):
    """An inconsistent file."""


@dataclass(frozen=True)
class Array:
    """A MATLAB array, flattened by columns: numbers, a string, or (in a cell) parts that are arrays.

    A struct has one dict of parts per element.
    """

    name: str
    numbers: NDArray[np.generic] | None = None
    text: str | None = None
    cells: tuple["Array", ...] | None = None
    structs: tuple[dict[str, "Array"], ...] | None = field(default=None, repr=False)


def read_matlab(path: Path, name: str) -> Array:
    """The variable of this name in a MATLAB 5 file."""
    content = read_regular(path, MOST_BYTES)
    try:
        return _variable(content, name)
    except KeyError:
        raise RequestError(f"{path}: has no {name!r}; download it again") from None
    except (_TornError, zlib.error, UnicodeDecodeError) as error:
        raise RequestError(
            f"{path}: truncated, or not a MATLAB 5 file ({one_line(error)}); download it again"
        ) from error


def _variable(content: bytes, name: str) -> Array:
    order = {b"IM": "<", b"MI": ">"}.get(content[126:_HEADER])
    if order is None:
        raise _TornError("no header")
    left = MOST_BYTES  # for all variables together
    for kind, element in _elements(memoryview(content)[_HEADER:], order):
        if kind == _COMPRESSED:
            decompressor = zlib.decompressobj()
            unpacked = decompressor.decompress(element, left + 1)
            left -= len(unpacked)
            if left < 0 or not decompressor.eof:
                raise _TornError(f"a variable without end, or variables of more than {MOST_BYTES // 10**6} MB")
            kind, element = _only(_elements(memoryview(unpacked), order))
        if kind == _MATRIX and _Matrix(element, order, budget := _Parts()).name == name:
            return _Matrix(element, order, budget).array(0)
    raise KeyError(name)


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Consecutive elements: their type and their bytes."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise _TornError("an element without a tag")
        kind, size = struct.unpack_from(f"{order}II", data, at)
        start = at + 8
        if kind >> 16:  # the short form: size and type in one word, the data in the other
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
            if size > 4:
                raise _TornError("a short element of more than 4 bytes")
            at += 8
        else:
            at = start + size + (-size % 8 if kind != _COMPRESSED else 0)
        if start + size > len(data):
            raise _TornError("an element that is longer than the file")
        yield kind, data[start : start + size]


def _only(elements: Iterator[tuple[int, memoryview]]) -> tuple[int, memoryview]:
    element = next(elements, None)
    if element is None:
        raise _TornError("an empty element")
    return element


class _Parts:
    """Counts the parts of a variable: eight bytes of a file are enough for one, and an array of arrays multiplies."""

    def __init__(self) -> None:
        self._left = _MOST_PARTS

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise _TornError(f"a variable of more than {_MOST_PARTS:,} parts")


class _Matrix:
    """The element of an array: flags, shape and name first, then what depends on its class."""

    def __init__(self, data: memoryview, order: str, parts: _Parts) -> None:
        self._order, self._rest, self._left = order, _elements(data, order), parts
        flags = self._integers("flags")
        if len(flags) != 2:
            raise _TornError("an array without flags")
        self._class, self._is_complex = flags[0] & 0xFF, bool(flags[0] & _COMPLEX)
        shape = self._integers("shape")
        if not 2 <= len(shape) <= _MOST_DIMENSIONS or min(shape) < 0:
            raise _TornError(f"an array of {len(shape)} dimensions, {shape[:_MOST_DIMENSIONS]}")
        self._count = math.prod(shape)
        self.name = bytes(_only(self._rest)[1]).decode("latin1")

    def array(self, depth: int) -> Array:
        """The whole array; parts of it are `depth` levels deep."""
        if depth > _DEEPEST:
            raise _TornError(f"arrays in arrays, {depth} levels deep")
        if self._class in _NUMERIC and not self._is_complex:
            return Array(self.name, numbers=self._numbers())
        if self._class == _CHAR:
            return Array(self.name, text=self._text())
        if self._class == _CELL:
            return Array(self.name, cells=tuple(self._parts(self._count, depth)))
        if self._class == _STRUCT:
            return Array(self.name, structs=self._structs(depth))
        raise _TornError(f"an array of class {self._class}, which image lists do not have")

    def _integers(self, what: str) -> list[int]:
        kind, data = _only(self._rest)
        if kind not in (5, 6) or len(data) % 4:
            raise _TornError(f"an array without {what}")
        return [int(number) for number in np.frombuffer(data, dtype=self._order + _NUMBERS[kind])]

    def _numbers(self) -> NDArray[np.generic]:
        kind, data = _only(self._rest)
        if kind not in _NUMBERS or len(data) != self._count * np.dtype(_NUMBERS[kind]).itemsize:
            raise _TornError(f"{len(data)} bytes for {self._count} numbers")
        return np.frombuffer(data, dtype=self._order + _NUMBERS[kind])

    def _text(self) -> str:
        if self._count == 0:
            return ""
        kind, data = _only(self._rest)
        if kind not in _TEXT_ENCODINGS:
            raise _TornError(f"a string of type {kind}")
        encoding = _TEXT_ENCODINGS[kind]
        ordered = encoding + ("-le" if self._order == "<" else "-be") if encoding in ("utf-16", "utf-32") else encoding
        return bytes(data).decode(ordered)

    def _parts(self, count: int, depth: int) -> Iterator[Array]:
        """The next `count` elements, each of them an array; an empty one may have no bytes at all."""
        self._left.take(count)
        for _ in range(count):
            kind, data = _only(self._rest)
            if kind != _MATRIX:
                raise _TornError(f"an element of type {kind} where an array should be")
            yield _Matrix(data, self._order, self._left).array(depth + 1) if data else Array("")

    def _structs(self, depth: int) -> tuple[dict[str, Array], ...]:
        width = self._integers("lengths of names")
        names = bytes(_only(self._rest)[1])
        if len(width) != 1 or width[0] < 1 or len(names) % width[0]:
            raise _TornError("a struct without names of its fields")
        if len(names) > _MOST_FIELDS * width[0]:
            raise _TornError(f"a struct of more than {_MOST_FIELDS:,} fields")
        pieces = (names[start : start + width[0]] for start in range(0, len(names), width[0]))
        fields = [piece.split(b"\0")[0].decode("latin1") for piece in pieces]
        if not fields and self._count:
            raise _TornError("a struct without fields")
        return tuple(dict(zip(fields, self._parts(len(fields), depth), strict=True)) for _ in range(self._count))
