"""Pickles from outside, read as data: their opcodes run on a stack of plain values, and no function is imported.

Python's unpicklers hash, compare and print what a pickle describes. A pair of the same pair, forty levels deep, has a
hundred bytes, and any of these takes 2^40 steps. Here keys are texts, bytes or integers, what is used again counts
with all that is in it, and a call gives what the reader says. Imports no torch.
"""

import pickletools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol, runtime_checkable

from favor.errors import one_line, shown

MOST_OPCODES = 2**20
"""CIFAR-100's training images take 300,000, the weights of a network some 20 for each tensor."""
MOST_REPEATED = 2**20
"""Values, and pieces of 64 letters, in what is used again, such as settings that the layers of an optimizer share."""


class NotPlainError(Exception):
    """A pickle that does more than to hold plain data, and what."""


class NotPickleError(Exception):
    """Bytes that are not a pickle, and why."""


@dataclass(frozen=True)
class Named:
    """A function, a class or a constant that a pickle names, as `module.name`."""

    name: str


@runtime_checkable
class TakesState(Protocol):
    """What a call gave, and a pickle then describes in more detail."""

    def set_state(self, state: object) -> None: ...


Known = Mapping[str, Callable[[tuple[object, ...]], object] | None]
"""The names that a pickle may use, each with what a call of it gives; None for those that are not called."""


def read_plain(pickled: BinaryIO, known: Known, stored: Callable[[object], object] | None = None) -> object:
    """The value of the next pickle in a file; `stored` gives what is kept outside of it, by its identity."""
    return _Machine(known, stored).run(pickled)


class _Value:
    """A value on the stack: how much is in it, and whether it was used, so that it has to stay as it is."""

    __slots__ = ("content", "is_final", "size")

    def __init__(self, content: object, size: int = 1) -> None:
        self.content, self.size, self.is_final = content, size, False


class _Machine:
    def __init__(self, known: Known, stored: Callable[[object], object] | None) -> None:
        self._known, self._stored = known, stored
        self._stack: list[_Value] = []
        self._outer: list[list[_Value]] = []
        self._memo: dict[int, _Value] = {}
        self._repeated = 0

    def run(self, pickled: BinaryIO) -> object:
        try:
            for number, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
                if number == MOST_OPCODES:
                    raise NotPlainError(f"has more than {MOST_OPCODES:,} opcodes")
                if opcode.name == "STOP":
                    break
                self._step(opcode.name, argument)
        except ValueError as error:  # of pickletools, which describes what is wrong
            raise NotPickleError(one_line(error)) from error
        (value,) = self._pop(1)
        return value.content

    def _step(self, opcode: str, argument: object) -> None:
        match opcode:
            case "PROTO" | "FRAME":
                pass
            case "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = self._top()  # type: ignore[index] # an integer
            case "MEMOIZE":
                self._memo[len(self._memo)] = self._top()
            case "BINGET" | "LONG_BINGET":
                self._repeat(argument)
            case "MARK":
                self._outer.append(self._stack)
                self._stack = []
            case "EMPTY_TUPLE":
                self._push(())
            case "EMPTY_LIST":
                self._push([])
            case "EMPTY_DICT":
                self._push({})
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                self._push_tuple(self._pop(int(opcode[-1])))
            case "TUPLE":
                self._push_tuple(self._pop_to_mark())
            case "APPEND":
                self._extend(self._pop(1))
            case "APPENDS":
                self._extend(self._pop_to_mark())
            case "SETITEM":
                self._update(self._pop(2))
            case "SETITEMS":
                self._update(self._pop_to_mark())
            case "GLOBAL":
                self._name(str(argument).replace(" ", ".", 1))
            case "STACK_GLOBAL":
                self._name(".".join(str(part.content) for part in self._pop(2)))
            case "REDUCE" | "NEWOBJ":
                self._call(*self._pop(2))
            case "BUILD":
                self._set_state(*self._pop(1))
            case "BINPERSID":
                self._push(self._from_outside(*self._pop(1)))
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                self._push({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[opcode])
            case _ if isinstance(argument, int | float | str | bytes) and opcode in _LITERALS:
                self._push(argument, 1 + len(argument) // 64 if isinstance(argument, str | bytes) else 1)
            case _:
                raise NotPlainError(f"uses the opcode {opcode}")

    def _push(self, content: object, size: int = 1) -> None:
        self._stack.append(_Value(content, size))

    def _pop(self, count: int) -> list[_Value]:
        if len(self._stack) < count:
            raise NotPickleError("an opcode without its operands")
        values = self._stack[-count:]
        del self._stack[-count:]
        for value in values:
            value.is_final = True
        return values

    def _pop_to_mark(self) -> list[_Value]:
        if not self._outer:
            raise NotPickleError("an opcode without its mark")
        values, self._stack = self._stack, self._outer.pop()
        for value in values:
            value.is_final = True
        return values

    def _top(self) -> _Value:
        if not self._stack:
            raise NotPickleError("an opcode without its operand")
        return self._stack[-1]

    def _growing(self, kind: type, values: Sequence[_Value]) -> _Value:
        """The value below the operands, to which they are added."""
        value = self._top()
        if not isinstance(value.content, kind):
            raise NotPickleError(f"a {type(value.content).__name__} in place of a {kind.__name__}")
        if value.is_final:
            raise NotPlainError("changes a value after using it, so the value may contain itself")
        value.size += _size(values)
        return value

    def _repeat(self, index: object) -> None:
        value = self._memo.get(index)  # type: ignore[call-overload] # an integer
        if value is None:
            raise NotPickleError(f"no value was stored under the number {index}")
        self._repeated += value.size - 1
        if self._repeated > MOST_REPEATED:
            raise NotPlainError(f"repeats more than {MOST_REPEATED:,} of its values")
        value.is_final = True
        self._stack.append(value)

    def _push_tuple(self, values: Sequence[_Value]) -> None:
        self._push(tuple(value.content for value in values), 1 + _size(values))

    def _extend(self, values: Sequence[_Value]) -> None:
        self._growing(list, values).content.extend(value.content for value in values)  # type: ignore[attr-defined]

    def _update(self, values: Sequence[_Value]) -> None:
        if len(values) % 2:
            raise NotPickleError("a key without a value")
        target = self._growing(dict, values).content
        for key, value in zip(values[::2], values[1::2], strict=True):
            target[require_key(key.content)] = value.content  # type: ignore[index]

    def _name(self, name: str) -> None:
        if name not in self._known:
            raise NotPlainError(f"uses {shown(name)}")
        self._push(Named(name))

    def _call(self, function: _Value, arguments: _Value) -> None:
        if not isinstance(function.content, Named):
            raise NotPickleError("a call of something that is not a function")
        call = self._known[function.content.name]
        if call is None or not isinstance(arguments.content, tuple):
            raise NotPlainError(f"calls {shown(function.content.name)}")
        self._push(call(arguments.content), 1 + arguments.size)

    def _set_state(self, state: _Value) -> None:
        value = self._growing(TakesState, [state])
        value.content.set_state(state.content)  # type: ignore[attr-defined]

    def _from_outside(self, identity: _Value) -> object:
        if self._stored is None:
            raise NotPlainError("refers to data outside of it")
        return self._stored(identity.content)


_MOST_KEY_BITS = 63
"""Integers hash to their remainders by 2^61 - 1: any number of longer ones can share a hash, which makes dicts slow."""
_LITERALS = frozenset(
    (
        *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINSTRING", "SHORT_BINSTRING"),
        *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    )
)


def require_key(key: object) -> object:
    """The key itself; a NotPlainError if hashing it may take longer than reading it."""
    if not isinstance(key, str | bytes | int):
        raise NotPlainError(f"has a key of type {type(key).__name__}")
    if isinstance(key, int) and key.bit_length() > _MOST_KEY_BITS:
        raise NotPlainError(f"has an integer of {key.bit_length():,} bits as a key")
    return key


def _size(values: Sequence[_Value]) -> int:
    return sum(value.size for value in values)
