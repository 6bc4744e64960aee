"""YAML from outside (studies, recipes, devices): plain data within limits, with the line number of each part.

Limits are checked while the text is parsed, before any object is built. Imports no torch.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from favor.errors import RequestError, Step, one_line, path_text, shown
from favor.regular_file import read_text

MOST_BYTES = 2**18
"""A hundred times what people write; a stored study of all timm models takes a third of it."""
MOST_DEPTH = 16
MOST_NODES = 50_000
MOST_CHARACTERS = 10_000
"""The longest single value, such as a recipe's `doc`."""
MOST_CHARACTERS_OF_A_NUMBER = 64

_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(_TAG + kind for kind in ("str", "null", "bool", "int", "float"))


class YamlFile:
    """The content of a YAML file as plain data, lists as tuples, and the line of each part."""

    def __init__(self, place: str, text: str, scale: int = 1) -> None:
        self.place = place
        if len(text) > scale * MOST_BYTES:
            raise RequestError(
                f"{place}: {len(text):,} characters, more than the limit of {scale * MOST_BYTES:,} for a YAML file"
            )
        try:
            root = _BoundedLoader(text, self._refusal, scale * MOST_NODES).get_single_node()
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position)
            raise self._refusal(line, f"the character {error.character:#x} is not allowed in YAML") from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            why = one_line(ValueError(error.problem or error.context))
            raise self._refusal(mark.line if mark else 0, f"not YAML: {why}") from error
        self._lines: dict[tuple[Step, ...], int] = {(): 1}
        self.content = None if root is None else self._plain(root, ())

    @classmethod
    def read(cls, file: Path, scale: int = 1) -> "YamlFile":
        """The content of a file; `scale` multiplies the limits on its length."""
        return cls(str(file), read_text(file, scale * MOST_BYTES), scale)

    def line(self, path: Sequence[Step]) -> int:
        """The line of a part, counted from 1; if the part is missing, the line of what should contain it.

        >>> YamlFile("my.yaml", "name: mine\\nmodels:\\n- vit_s16\\n").line(("models", 0))
        3
        """
        steps = tuple(path)
        return next(self._lines[steps[:end]] for end in range(len(steps), -1, -1) if steps[:end] in self._lines)

    def error(self, path: Sequence[Step], why: object) -> RequestError:
        """The error for a part: file, line, its name, and what is wrong."""
        named = path_text(path)
        return RequestError(f"{self.place}:{self.line(path)}: {named + ': ' if named else ''}{why}")

    def mapping(self, what: str) -> dict[str, object]:
        """The content as keys and values, the form of studies, recipes and devices."""
        if not isinstance(self.content, dict):
            kind = {tuple: "a list", type(None): "an empty file"}.get(type(self.content), "a single value")
            raise self.error((), f"{what} is written as lines of `key: value`, not {kind}")
        return self.content

    def _refusal(self, line_from_0: int, why: str) -> RequestError:
        return RequestError(f"{self.place}:{line_from_0 + 1}: {why}")

    def _plain(self, node: yaml.Node, path: tuple[Step, ...]) -> object:
        if isinstance(node, yaml.MappingNode):
            values: dict[str, object] = {}
            for key_node, value in node.value:
                key = self._key(key_node)
                if key in values:
                    raise self._refusal(key_node.start_mark.line, f"duplicate key {shown(key)}; keep one of them")
                self._lines[*path, key] = key_node.start_mark.line + 1
                values[key] = self._plain(value, (*path, key))
            return values
        if isinstance(node, yaml.SequenceNode):
            for number, item in enumerate(node.value):
                self._lines[*path, number] = item.start_mark.line + 1
            return tuple(self._plain(item, (*path, number)) for number, item in enumerate(node.value))
        assert isinstance(node, yaml.ScalarNode)  # noqa: S101 - there is no fourth kind
        return self._scalar(node)

    def _key(self, node: yaml.Node) -> str:
        key = self._scalar(node) if isinstance(node, yaml.ScalarNode) and node.tag in _PLAIN_TAGS else None
        if not isinstance(key, str):
            written = shown(node.value) if isinstance(node, yaml.ScalarNode) else "a list or a mapping"
            raise self._refusal(node.start_mark.line, f"the key {written} is not a string; quote it")
        return key

    def _scalar(self, node: yaml.ScalarNode) -> object:
        text, line = node.value, node.start_mark.line
        if node.tag not in _PLAIN_TAGS:
            raise self._refusal(line, f"{shown(text)} would be read as a date or a merge key; quote it")
        if len(text) > MOST_CHARACTERS:
            raise self._refusal(line, f"a value of {len(text):,} characters; the limit is {MOST_CHARACTERS:,}")
        if node.tag == f"{_TAG}str":
            if wrong := _CONTROL.search(text):
                raise self._refusal(line, f"a string with the control character {wrong[0]!r}; remove it")
            return text
        if len(text) > MOST_CHARACTERS_OF_A_NUMBER:
            raise self._refusal(line, f"a number of {len(text):,} digits; the limit is {MOST_CHARACTERS_OF_A_NUMBER}")
        try:
            value = yaml.SafeLoader.yaml_constructors[node.tag](_SCALARS, node)
        except ValueError as error:  # YAML 1.1 takes `0x_` for a number
            raise self._refusal(line, f"{shown(text)} is not a number; quote it if it is a string") from error
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise self._refusal(line, f"{shown(text)} does not fit into a 64-bit integer")
        return value


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # and lone surrogates
_SCALARS = yaml.constructor.SafeConstructor()


class _BoundedLoader(yaml.SafeLoader):
    """Composes nodes as PyYAML does, but refuses tags, aliases, deep nesting and long input first."""

    def __init__(self, text: str, refusal: Callable[[int, str], RequestError], most_nodes: int) -> None:
        super().__init__(text)
        self._refusal, self._most_nodes = refusal, most_nodes
        self._depth = self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        line = event.start_mark.line
        if isinstance(event, yaml.AliasEvent):
            raise self._refusal(
                line, f"aliases such as {shown(f'*{event.anchor}')} are not supported; repeat the value"
            )
        if event.tag is not None:
            raise self._refusal(
                line, f"tags such as {shown(event.tag.replace(_TAG, '!!'))} are not supported; write the plain value"
            )
        self._nodes += 1
        if self._nodes > self._most_nodes:
            raise self._refusal(line, f"more than {self._most_nodes:,} values, the limit for a YAML file")
        if self._depth == MOST_DEPTH:
            raise self._refusal(line, f"nested more than {MOST_DEPTH} levels deep")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node
