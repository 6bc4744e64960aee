"""Studies that come with favor, measured on our machines; `--study example:cpu` names one. Imports no torch.

Their records have the source `imported`: for users they come from another machine, and their own measurements
take precedence. `benchmarks/make_cpu_study.py` makes `cpu.jsonl` and `cpu-avx512.jsonl`.
"""

from pathlib import Path

from msgspec.structs import replace

from favor.errors import unknown_name
from favor.records.schema import Record

PREFIX = "example:"
ENDING = ".jsonl"
FOLDER = Path(__file__).parent


def example_names() -> tuple[str, ...]:
    """The studies that come with favor."""
    return tuple(sorted(file.name.removesuffix(ENDING) for file in FOLDER.iterdir() if file.name.endswith(ENDING)))


def example_file(name: str) -> Path:
    """The records file of a study that comes with favor."""
    if name not in example_names():
        known = ", ".join(PREFIX + example for example in example_names()) or "none"
        raise unknown_name("example study", name, example_names(), f"there is {known}")
    return FOLDER / (name + ENDING)


def as_example(record: Record, name: str) -> Record:
    """A measured record as favor ships it, without the host name of its machine."""
    environment = {key: value for key, value in record.environment.items() if key != "host"}
    provenance = {"file": f"{PREFIX}{name}", "row": record.name}
    return replace(record, source="imported", provenance=provenance, environment=environment)
