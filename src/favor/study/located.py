"""YAML whose every part knows its line, so that an error can say where it is. Imports no torch."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from favor.errors import RequestError

Step = str | int
_TEXT_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")


class LocatedYaml:
    """The content of a YAML file as plain data, lists as tuples, and the line of each part of it."""

    def __init__(self, place: str, text: str) -> None:
        self.place = place
        try:
            self._root = yaml.compose(text, Loader=yaml.SafeLoader)
            self.content = _with_tuples(yaml.safe_load(text), {})
        except RecursionError as error:
            why = "it is nested without end, or an alias stands inside of what it names"
            raise RequestError(f"{place}: {why}; a study is a list of `key: value`") from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f"{place}:{mark.line + 1}" if mark else place
            why = getattr(error, "problem", None) or " ".join(str(error).split())
            raise RequestError(f"{where}: not YAML: {why}; a study is a list of `key: value`") from error
        self._refuse_wrong_keys()

    @classmethod
    def read(cls, file: Path) -> "LocatedYaml":
        """The content of a file."""
        try:
            return cls(str(file), file.read_text(encoding="utf-8"))
        except OSError as error:
            raise RequestError(f"{file}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise RequestError(f"{file}: not a text in UTF-8: {error.reason}") from error

    def line(self, path: Sequence[Step]) -> int:
        """The line of a part, from 1; of what it is missing in, where it is not there.

        >>> LocatedYaml("my.yaml", "name: mine\\nmodels:\\n- vit_s16\\n").line(("models", 0))
        3
        """
        node, line = self._root, 1
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            line, node = found
        return line

    def error(self, path: Sequence[Step], why: object) -> RequestError:
        """The error for a part: file, line, what it is called, and why it is wrong."""
        named = _path_text(path)
        return RequestError(f"{self.place}:{self.line(path)}: {named + ': ' if named else ''}{why}")

    def _refuse_wrong_keys(self) -> None:
        """YAML would silently keep the last of two values under one key, and read a key such as `yes` as no text."""
        for node in _mappings(self._root):
            seen: set[str] = set()
            for key, _ in node.value:
                where = f"{self.place}:{key.start_mark.line + 1}: the key {key.value!r}"
                if key.tag not in _TEXT_TAGS:
                    raise RequestError(f"{where} is no text; put it in quotes if it is meant so")
                if key.value in seen:
                    raise RequestError(f"{where} is there twice; keep one of them")
                seen.add(str(key.value))


def _child(node: yaml.Node | None, step: Step) -> tuple[int, yaml.Node] | None:
    """The line and the node of a key of a mapping, or of an item of a list; a key's line, not its value's."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        item = node.value[step]
        return item.start_mark.line + 1, item
    return None


def _mappings(root: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    """Every mapping once, though aliases may name it many times."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield node
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _path_text(path: Sequence[Step]) -> str:
    """A path as people write it.

    >>> _path_text(("train", "seeds", 0))
    'train.seeds[0]'
    """
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _with_tuples(value: object, made: dict[int, object]) -> object:
    """Lists as tuples; what aliases name again is made once, or aliases of aliases would take for ever."""
    if not isinstance(value, list | dict):
        return value
    if id(value) not in made:
        if isinstance(value, list):
            made[id(value)] = tuple(_with_tuples(item, made) for item in value)
        else:
            made[id(value)] = {key: _with_tuples(item, made) for key, item in value.items()}
    return made[id(value)]
