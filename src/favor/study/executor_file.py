"""The executor of a study: the section of its file, changed by options, and saved in its folder. Imports no torch."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from favor.atomic_file import write_whole
from favor.errors import RequestError, shown
from favor.study.schema import ExecutorOptions, executor_in, is_setting_of
from favor.yaml_file import YamlFile

FILE_NAME = "executor.yaml"
_HEAD = "# Who runs the jobs of this study. You may change it; the next `favor resume` uses it.\n"


def changed(options: ExecutorOptions, kind: str | None, settings: Sequence[str]) -> ExecutorOptions:
    """The options with another executor, which keeps the settings that it has too, and with KEY=VALUE settings."""
    kind = options.kind if kind is None else executor_in({"kind": kind}, "--executor").kind
    content = {name: value for name, value in _plain(options).items() if is_setting_of(kind, name)}
    extra: tuple[object, ...] = ()
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise RequestError(f"--set {shown(setting)}: write KEY=VALUE, such as --set partition=gpu")
        if name == "extra":
            extra += (value,)
        else:
            content[name] = YamlFile(f"--set {name}", value).content
    return executor_in(content | ({"extra": extra} if extra else {}) | {"kind": kind}, "--set")


def save_executor(folder: Path, options: ExecutorOptions) -> None:
    """Save the options in a study's folder."""
    content = {name: list(value) if isinstance(value, tuple) else value for name, value in _plain(options).items()}
    write_whole(folder / FILE_NAME, (_HEAD + yaml.safe_dump(content, sort_keys=False)).encode())


def saved_executor(folder: Path) -> ExecutorOptions:
    """The executor of a study; this machine if none was saved."""
    file = folder / FILE_NAME
    if not file.is_file():
        return ExecutorOptions()
    return executor_in(YamlFile.read(file).mapping("an executor"), str(file))


def _plain(options: ExecutorOptions) -> dict[str, object]:
    """The settings that were given, as in a file."""
    written = options.model_dump(mode="json", exclude_unset=True)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in written.items()}
