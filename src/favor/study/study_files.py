"""Where studies come from: the ones inside the package by name, and files of one's own. Imports no torch."""

from functools import cache
from importlib.resources import files
from pathlib import Path

from favor.errors import unknown_name
from favor.study.schema import StudyFile, study_in
from favor.yaml_file import YamlFile

DEFAULT_STUDY = "quick"
# In the order of their cost, which is the order to meet them in.
BUILT_IN = ("quick", "full", "vix", "misnomer", "laptop", "paper")
_ENDINGS = (".yaml", ".yml")


def open_study(name: str) -> tuple[StudyFile, YamlFile]:
    """The study of this name, or in this file (a path that ends in .yaml), with its text for errors to point at."""
    if name.endswith(_ENDINGS):
        file = Path(name)
        source = YamlFile.read(file)
        return study_in(source, default_name=file.stem), source
    if name not in BUILT_IN:
        remedy = f"built in are {', '.join(BUILT_IN)}; your own: a path to a .yaml file"
        raise unknown_name("study", name, BUILT_IN, remedy)
    source = YamlFile(f"built-in study {name}", _text_of(name))
    return study_in(source, default_name=name), source


@cache
def _text_of(name: str) -> str:
    return (files("favor.study") / "built_in" / f"{name}.yaml").read_text(encoding="utf-8")
