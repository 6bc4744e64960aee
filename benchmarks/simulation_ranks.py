"""Are the stated probabilities right? How often is A faster than B where the simulation says so with probability p.

python benchmarks/simulation_ranks.py --tables DIR --cache DIR      20 minutes; 3 with the traces in the cache

The first DIR holds timm's eager tables of the RTX 3090, RTX 4090 and RTX 5090. Every time is predicted by a fit that
has seen neither its card nor its family: the case of a user whose card no table shows. By default the models are those
of the fit. The times of other authors (benchmarks/published) are those of cards with wide intervals; they are predicted
by the shipped calibration.
The first table gives what recommendations split an interval into: a card's offset, which all models share, and the
spread of residuals within a card. The second compares stated and observed probabilities over all pairs of models of a
card or source: each number drawn alone, and with the shared part drawn once (`favor.analyze.intervals.draw`).
"""

import argparse
import sys
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from favor.analyze.intervals import SIMULATED_OWN, draw
from favor.errors import FavorError
from favor.simulation.calibration import from_json, shipped_calibration
from favor.simulation.correction import NO_CORRECTION
from favor.simulation.devices import Device, device
from favor.simulation.fitting.fit import Fitted, Observation, family_folds, hold_out_device, of_version
from favor.simulation.fitting.timm_tables import Row, Traced, rows_of, trace_all
from favor.simulation.spread import bounds, spread
from favor.simulation.time_model import estimate_counted
from fit_simulation import FOLDS, SAME_MEMORY, UNKNOWN
from simulation_transfer import HALF, PUBLISHED

TABLES = {
    "rtx3090": "benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv",
    "rtx4090": "benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv",
    "rtx5090": "benchmark-infer-amp-nchw-pt291-cu130-5090.csv",
}
HERE = Path(__file__).parent
BINS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.01)
DRAWS = 2000


@dataclass(frozen=True)
class Judged:
    """A simulated time: seconds of an image, the true ones, and the deviation of the logarithm that is stated."""

    source: str
    network: str
    family: str
    simulated: float
    true: float
    deviation: float

    @property
    def residual(self) -> float:
        return float(np.log(self.true / self.simulated))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tables", type=Path, required=True, help="folder with timm's speed tables")
    arguments.add_argument("--cache", type=Path, required=True, help="folder that keeps the traces")
    arguments.add_argument("--models", type=Path, default=HERE / "fit_models.txt", help="file of NAME@PIXELS")
    asked = arguments.parse_args()
    try:
        _compare(asked.tables, asked.cache, set(asked.models.read_text(encoding="utf-8").split()))
    except FavorError as error:
        sys.exit(f"error: {error}")


def _compare(folder: Path, cache: Path, models: Container[str]) -> None:
    on_cards = list(_of_timm(folder, cache, models))
    elsewhere = list(_of_others(cache))
    by_card = {card: [each for each in on_cards if each.source == card] for card in TABLES}
    print("| card | models | offset | spread within the card | due to families | stated deviation |")
    print("|---|---:|---:|---:|---:|---:|")
    for card, some in by_card.items():
        residuals, stated = np.array([one.residual for one in some]), np.mean([one.deviation for one in some])
        offset, within, families = residuals.mean(), residuals.std(ddof=1), _between_families(some)
        print(f"| {card} | {len(some)} | {offset:+.3f} | {within:.3f} | {families:.3f} | {stated:.3f} |")
    within = [np.var([one.residual for one in some], ddof=1) for some in by_card.values()]
    print(f"\nroot mean square within a card: {np.sqrt(np.mean(within)):.3f}; used: {SIMULATED_OWN}\n")
    bins = " | ".join(f"{low:.0%} to {min(high, 1):.0%}" for low, high in pairwise(BINS))
    print(f"| pairs of | drawn | {bins} | Brier |\n|---|---|{'---:|' * len(BINS)}")
    for title, some in {**by_card, "other authors, by source": elsewhere}.items():
        for how in ("alone", "together"):
            _report(title, how, some)


def _of_timm(folder: Path, cache: Path, models: Container[str]) -> Iterator[Judged]:
    """Every time by a fit without its card and its family."""
    rows: list[Row] = []
    seen: list[Observation] = []
    for card, file in TABLES.items():
        some = [row for row in rows_of(folder / file) if f"{row.architecture}@{row.img_size}" in models]
        for row, traced in trace_all(some, cache / f"pt{some[0].torch_version.replace('.', '')}"):
            if isinstance(traced, Traced):
                rows.append(row)
                seen.append(Observation(traced, row.seconds, device(card), row.version))
    fold_of = family_folds([each.traced.family for each in seen], FOLDS)
    for card in TABLES:
        for fold in range(FOLDS):
            knows = _without(card, [each for each, its in zip(seen, fold_of, strict=True) if its != fold])
            for row, each, its in zip(rows, seen, fold_of, strict=True):
                if its == fold and each.device.name == card:
                    found, images = knows.estimate(each), row.batch_size
                    deviation = spread(found, knows.devices[card], knows.calibration, NO_CORRECTION)
                    times = found.seconds / images, row.seconds / images
                    yield Judged(card, row.key, each.traced.family, *times, deviation)


def _without(card: str, seen: Sequence[Observation]) -> Fitted:
    """The calibration without a card, and the card as its data sheet and the other cards describe it."""
    start = from_json((HERE / "fit_start.json").read_text(encoding="utf-8"))
    others = [other for other in TABLES if other != card]
    fitted, described = hold_out_device(seen, card, SAME_MEMORY.get(card, others), start)
    unknown = UNKNOWN | {"bandwidth_deviation": Device.model_fields["bandwidth_deviation"].default}
    shipped = shipped_calibration()
    knows = replace(fitted.calibration, residuals=shipped.residuals, device=shipped.device)
    return Fitted(knows, {card: described.model_copy(update=unknown)})


def _of_others(cache: Path) -> Iterator[Judged]:
    for source, (name, place) in HALF.items():
        rows = rows_of(PUBLISHED / f"benchmark-{name}.csv", by_timm=False)
        yield from _judged(source, place, rows, cache / name)


def _judged(source: str, place: str, rows: list[Row], cache: Path) -> Iterator[Judged]:
    gpu = device(place)
    calibration = of_version(shipped_calibration(), rows[0].version)
    for row, traced in trace_all(rows, cache):
        if isinstance(traced, Traced):
            found = estimate_counted(gpu, traced.kernels, traced.counts, calibration)
            deviation = spread(found, gpu, calibration, NO_CORRECTION)
            images = row.batch_size
            yield Judged(source, row.key, traced.family, found.seconds / images, row.seconds / images, deviation)


def _between_families(some: list[Judged]) -> float:
    """The deviation between the means of families, from a one-way analysis of variance."""
    table = pd.DataFrame({"family": [one.family for one in some], "residual": [one.residual for one in some]})
    groups = table.groupby("family")["residual"]
    sizes, families = groups.size(), groups.ngroups
    within = ((table["residual"] - groups.transform("mean")) ** 2).sum() / (len(table) - families)
    between = (sizes * (groups.mean() - table["residual"].mean()) ** 2).sum() / (families - 1)
    usual_size = (len(table) - (sizes**2).sum() / len(table)) / (families - 1)
    return float(np.sqrt(max(0.0, (between - within) / usual_size)))


def _report(title: str, how: str, some: list[Judged]) -> None:
    stated, right = (np.concatenate(parts) for parts in zip(*_pairs(some, how), strict=True))
    cells = []
    for low, high in pairwise(BINS):
        inside = (stated >= low) & (stated < high)
        cells.append(f"{stated[inside].mean():.0%}: {right[inside].mean():.0%}" if inside.sum() > 5 else "")
    print(f"| {title} | {how} | {' | '.join(cells)} | {np.mean((right - stated) ** 2):.4f} |")


def _pairs(some: list[Judged], how: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For every pair of models of a source, the stated probability of the likelier order, and whether it is right."""
    for source in dict.fromkeys(one.source for one in some):
        these = [one for one in some if one.source == source]
        ends = [bounds(1 / one.simulated, one.deviation) for one in these]
        table = pd.DataFrame(
            {
                "throughput": [1 / one.simulated for one in these],
                "throughput_low": [low for low, _ in ends],
                "throughput_high": [high for _, high in ends],
                "throughput_source": "simulated" if how == "together" else "measured",
            }
        )
        drawn = draw(table, "throughput", DRAWS, np.random.default_rng(0))
        true = np.array([1 / one.true for one in these])
        first, second = np.triu_indices(len(these), 1)
        faster = np.mean(drawn[:, first] > drawn[:, second], axis=0)
        yield np.maximum(faster, 1 - faster), (faster >= 0.5) == (true[first] > true[second])


if __name__ == "__main__":
    main()
