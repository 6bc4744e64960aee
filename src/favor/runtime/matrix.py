"""Which models run in which runtime, as tried by `benchmarks/runtime_matrix.py`. Imports no torch."""

import json
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from favor.errors import RequestError

RECORDS = Path(__file__).with_name("matrix.jsonl")


@dataclass(frozen=True)
class Cell:
    """One model in one runtime. Deviations are from eager mode, as shares of the largest output.

    `size` is `own` for the whole model and `miniature` for a small instance of its family. `batch_size` is None where
    one file serves all batch sizes. `float32_deviation` is that of eager mode in float32 from float64: the effect of
    rounding alone.
    """

    model: str
    runtime: str
    status: Literal["works", "deviates", "fails"]
    size: str = "own"
    img_size: int | None = None
    batch_size: int | None = None
    deviation: float | None = None
    float32_deviation: float | None = None
    reason: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return asdict(self)


def every_cell(file: Path = RECORDS) -> list[Cell]:
    """All records, in the order in which they were made."""
    return [Cell(**json.loads(line)) for line in file.read_text().splitlines()] if file.is_file() else []


def read_cells(file: Path = RECORDS) -> dict[tuple[str, str], Cell]:
    """The record that counts for each cell: the newest one of the whole model, else of a miniature."""
    ordered = sorted(every_cell(file), key=lambda cell: cell.size == "own")
    return {(cell.model, cell.runtime): cell for cell in ordered}


@cache
def shipped_cells() -> dict[tuple[str, str], Cell]:
    """The records that ship with favor, of those that count."""
    return read_cells()


def refuse_known_failure(model: str, runtime: str) -> None:
    """Refuse a model that is known not to run in a runtime, with the reason and what would work."""
    cell = shipped_cells().get((model, runtime))
    if cell is None or cell.status == "works":
        return
    others = [other for (name, other), entry in shipped_cells().items() if name == model and entry.status == "works"]
    what = cell.reason or f"its outputs are off by {cell.deviation:.1e} of the largest one"
    raise RequestError(f"{model} does not run in {runtime}: {what}; use --runtime {' or '.join(['eager', *others])}")
