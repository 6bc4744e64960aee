"""Why FLOPs predict training memory: docs/training-memory.md from traces of the models of Table 5.

python benchmarks/training_memory.py            # traces all models (minutes), writes docs/training-memory.md
python benchmarks/training_memory.py t.json     # keeps the traced numbers in t.json, and uses them if they are there
"""

import json
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from scipy import stats

from favor.records import published
from favor.trace.counts import count
from favor.trace.peak_memory import peak_memory
from favor.zoo.registry import card

PAGE = Path(__file__).parents[1] / "docs" / "training-memory.md"
IMG_SIZE, BATCH = 224, 2048


@dataclass(frozen=True)
class Traced:
    """A model's work per image, and its training memory in bytes at batch 2048, by part."""

    name: str
    how: str
    params: int
    macs: int
    activations: int
    peak: int
    kept: int
    parts: dict[str, int]
    plain_peak: int

    @property
    def bytes_per_mac(self) -> float:
        """Kept bytes of an image for each of its multiply-adds."""
        return self.kept / BATCH / self.macs


def traced(name: str) -> Traced:
    counts = count(name, img_size=IMG_SIZE)
    memory = peak_memory(name, img_size=IMG_SIZE, batch_size=BATCH)
    plain = peak_memory(name, img_size=IMG_SIZE, batch_size=BATCH, attention="plain")
    how = card(name).how
    return Traced(
        name=name,
        how=how.key if how else "none",
        params=counts.params,
        macs=counts.macs,
        activations=counts.activations,
        peak=memory.peak,
        kept=memory.kept,
        parts=memory.parts,
        plain_peak=plain.peak,
    )


def table_5() -> list[str]:
    """The models of Table 5."""
    found = (record for record in published.records() if record.provenance.get("paper") == "which_transformer_to_favor")
    return list(dict.fromkeys(record.name for record in found if record.provenance.get("table") == "5"))


def models(kept: Path | None) -> list[Traced]:
    if kept is not None and kept.exists():
        return [Traced(**row) for row in json.loads(kept.read_text())]
    rows = []
    for name in table_5():
        rows.append(traced(name))
        print(name, f"{rows[-1].peak / 1e9:.1f} GB", file=sys.stderr)
    if kept is not None:
        kept.write_text(json.dumps([asdict(row) for row in rows]))
    return rows


def correlation(rows: list[Traced], x: str, y: str) -> tuple[float, float]:
    """Pearson's and Spearman's correlation of two numbers of the models."""
    values = [[getattr(row, name) for row in rows] for name in (x, y)]
    return float(stats.pearsonr(*values)[0]), float(stats.spearmanr(*values)[0])


def spread(values: list[float]) -> float:
    """How many times the ninth decile is the first one."""
    deciles = statistics.quantiles(values, n=10, method="inclusive")
    return deciles[-1] / deciles[0]


def kinds(row: Traced) -> dict[str, float]:
    """Shares of the kept activations by the kind of operator that made them, the largest first."""
    kept = {part.removeprefix("kept: "): size for part, size in row.parts.items() if part.startswith("kept: ")}
    return {kind: size / row.kept for kind, size in sorted(kept.items(), key=lambda item: -item[1])}
