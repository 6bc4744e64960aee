"""Training memory against FLOPs: traces of all models of Table 5 at 224 px, batch 2048, amp, LAMB, as tables.

python benchmarks/training_memory.py            # traces all models, which takes minutes
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


def kinds(row: Traced) -> dict[str, float]:
    """Shares of the kept activations by the kind of operator that made them, the largest first."""
    kept = {part.removeprefix("kept: "): size for part, size in row.parts.items() if part.startswith("kept: ")}
    return {kind: size / row.kept for kind, size in sorted(kept.items(), key=lambda item: -item[1])}


def in_words(shares: dict[str, float]) -> str:
    return ", ".join(f"{kind} {share:.0%}" for kind, share in list(shares.items())[:3])


def table(head: str, lines: list[str]) -> str:
    columns = head.count("|") - 1
    return "\n".join([head, "|---|" + "---:|" * (columns - 1), *lines])


def correlations(rows: list[Traced]) -> str:
    lines = []
    for title, x in (
        ("multiply-adds", "macs"),
        ("outputs of matrix products", "activations"),
        ("parameters", "params"),
    ):
        found = [*correlation(rows, x, "peak"), *correlation(rows, x, "kept")]
        lines.append(f"| {title} | " + " | ".join(f"{value:.2f}" for value in found) + " |")
    return table("| predictor | memory: Pearson | Spearman | kept activations: Pearson | Spearman |", lines)


def by_class(rows: list[Traced]) -> str:
    classes: dict[str, list[Traced]] = {}
    for row in rows:
        classes.setdefault(row.how, []).append(row)
    lines = []
    for how, of_class in sorted(classes.items(), key=lambda item: statistics.median(r.bytes_per_mac for r in item[1])):
        ratios = sorted(row.bytes_per_mac * 1e3 for row in of_class)
        median = statistics.median(ratios)
        lines.append(f"| {how} | {len(ratios)} | {median:.1f} | {ratios[0]:.1f} | {ratios[-1]:.1f} |")
    return table("| class | models | kept bytes per 1000 multiply-adds, median | least | most |", lines)


def extremes(rows: list[Traced]) -> str:
    ordered = sorted(rows, key=lambda row: row.bytes_per_mac)
    lines = [
        f"| {row.name} | {row.macs / 1e9:.2f} | {row.peak / 1e9:.0f} | {row.bytes_per_mac * 1e3:.1f} | "
        f"{in_words(kinds(row))} |"
        for row in (*ordered[:5], *ordered[-8:])
    ]
    return table("| model | GMACs | memory [GB] | kept bytes per 1000 MACs | kept, by operator |", lines)


def all_models(rows: list[Traced]) -> str:
    lines = [
        f"| {row.name} | {row.how} | {row.macs / 1e9:.2f} | {row.activations / 1e6:.1f} | {row.peak / 1e9:.1f} | "
        f"{row.kept / row.peak:.0%} | {row.bytes_per_mac * 1e3:.1f} | {row.plain_peak / 1e9:.1f} |"
        for row in sorted(rows, key=lambda row: row.peak)
    ]
    head = (
        "| model | class | GMACs | activations [M] | memory [GB] | kept | bytes per 1000 MACs | plain attention [GB] |"
    )
    return table(head, lines)


def main() -> None:
    rows = models(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    print("\n\n".join(shown(rows) for shown in (correlations, by_class, extremes, all_models)))


if __name__ == "__main__":
    main()
