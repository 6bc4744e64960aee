"""Tests use the public names of favor alone: what they need is part of a module's interface."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOREIGN = ("aten", "os", "torch")
"""What has private names of its own, some of them like those of favor."""


@cache
def private_names_of_favor() -> frozenset[str]:
    """The functions, classes, variables and attributes of favor with a leading underscore; `_repr_html_` is public."""
    names = set()
    for file in (ROOT / "src" / "favor").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    names.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    names.add(name)
    return frozenset(name for name in names if name.startswith("_") and not name.endswith("_"))


def names_used(node: ast.AST) -> Iterable[str]:
    """The names that an import, an attribute of another object, or a patch takes."""
    match node:
        case ast.ImportFrom(module=str(module), names=imported) if module.split(".")[0] == "favor":
            return [*module.split("."), *(one.name for one in imported)]
        case ast.Import(names=imported):
            return [part for one in imported if one.name.startswith("favor.") for part in one.name.split(".")]
        case ast.Attribute(value=owner, attr=name):
            path = ast.unparse(owner)
            return () if path in ("self", "cls") or path.split(".")[0] in FOREIGN else (name,)
        case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function), args=arguments):
            texts = [one.value for one in arguments[:2] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            is_access = function in ("getattr", "setattr", "delattr")
            return [part for text in texts for part in text.split(".")] if is_access else ()
    return ()


def private_uses(code: bytes | str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        for name in names_used(node):
            if name in private_names_of_favor():
                yield f"line {node.lineno}: {name}"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "folder", sorted({file.parent for file in (ROOT / "tests").rglob("*.py")}), ids=lambda f: f.name
)
def test_no_test_uses_a_private_name(folder: Path) -> None:
    assert [f"{file.name}, {use}" for file in folder.glob("*.py") for use in private_uses(file.read_bytes())] == []


@pytest.mark.parametrize(
    "line",
    [
        "from favor.zoo.registry import _entries",
        "from favor._entries import public",
        "import favor._entries",
        "registry._entries.clear()",
        "found()._entries",
        "super()._entries",
        "patch.setattr(registry, '_entries', {})",
        "patch.setattr('favor.zoo.registry._entries', {})",
        "getattr(registry, '_entries')",
    ],
)
def test_the_use_of_a_private_name_is_found(line: str) -> None:
    used = list(private_uses(line))
    assert used == ["line 1: _entries"]


@pytest.mark.parametrize(
    "line",
    ["self._entries = {}", "torch._dynamo.reset()", "answer._repr_html_()", "_entries = {}", "print('_entries')"],
)
def test_names_of_a_test_s_own_and_of_others_are_allowed(line: str) -> None:
    assert not list(private_uses(line))
