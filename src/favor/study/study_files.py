"""Study files: the built-in ones by name, and the user's own by path. Imports no torch."""

from functools import cache
from importlib.resources import files
from pathlib import Path

from favor.errors import unknown_name
from favor.study.schema import StudyFile, study_in
from favor.yaml_file import YamlFile

DEFAULT_STUDY = "quick"
# In the order of their cost.
BUILT_IN = (
    *("quick", "runtimes", "full", "vix", "misnomer-imagenet", "laptop", "misnomer"),
    *("vix-cifar10", "vix-tiny-imagenet", "paper"),
)
_ENDINGS = (".yaml", ".yml")


def open_study(name: str) -> tuple[StudyFile, YamlFile]:
    """The study of this name, or in this .yaml file, and its text, which errors point into."""
    if name.endswith(_ENDINGS):
        file = Path(name)
        source = YamlFile.read(file)
        return study_in(source, default_name=file.stem), source
    if name not in BUILT_IN:
        remedy = f"choose from {', '.join(BUILT_IN)}, or give the path of a .yaml file"
        raise unknown_name("study", name, BUILT_IN, remedy)
    source = YamlFile(f"built-in study {name}", _text_of(name))
    return study_in(source, default_name=name), source


@cache
def _text_of(name: str) -> str:
    return (files("favor.study") / "built_in" / f"{name}.yaml").read_text(encoding="utf-8")
