"""Which model to favor under the user's limits, and why.

One ranking uses accuracies of one pipeline and costs of one setting. An accuracy that belongs to another configuration
than ours is shown with its flag and never favored. Without numbers for the preferred cost the published Pareto fronts
stand in, and the answer says so.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from favor.analyze.answer import Binding, Choice, Reading, Recommendation, Why
from favor.analyze.assemble import COUNTED, QUALITIES, AccuracyBasis, accuracy_basis
from favor.analyze.chances import chance_of_being_best
from favor.analyze.deviations import deviations
from favor.analyze.guide import GuideEntry
from favor.analyze.limits import Limit, relax
from favor.analyze.ranking import LEAST_TO_COMPARE, Ranking, Request, candidates, rank
from favor.analyze.reasons import dominated_by, given_up
from favor.analyze.selection import numbers
from favor.metrics import METRICS
from favor.units import format_quantity

_CLASSES = {"cars": 196, "flowers102": 102, "places365": 365, "cifar10": 10, "tiny-imagenet": 200}
_USUAL_IMG_SIZE = 224


def recommend(
    table: pd.DataFrame,
    request: Request,
    published_fronts: Sequence[GuideEntry] = (),
    *,
    draws: int = 1000,
    seed: int = 0,
) -> Recommendation:
    """The favored model of a wide table under a request."""
    basis = None if request.any_pipeline else accuracy_basis(table, request.dataset)
    rows = candidates(table, request, basis)
    flags = deviations(table, rows)
    decision = _Decision(rank(rows, request, published_fronts), flags, request)
    pool = decision.pool(decision.eligible, request.limits)
    chances = decision.chances(pool, draws, seed)
    choices = tuple(decision.choice(at, row, chances) for at, row in pool.rows.head(request.top).iterrows())
    flagged = decision.pool(decision.flagged, request.limits).rows.head(request.top)
    return Recommendation(
        favored=choices[0] if choices else None,
        runners_up=choices[1:],
        flagged=tuple(decision.choice(at, row, None) for at, row in flagged.iterrows()),
        limits=request.limits,
        relax=relax(decision.eligible, request.limits) if request.limits and not choices else None,
        why=decision.why(pool) if choices else None,
        objective=decision.objective,
        ranked_by=decision.ranking.ranked_by,
        accuracy_basis=basis.describe() if basis else f"{request.dataset}, any pipeline",
        considered=len(decision.ranking.rows),
        notes=(*decision.ranking.notes, *decision.notes(pool, basis, chances)),
        next_steps=decision.next_steps(pool),
    )


@dataclass(frozen=True)
class _Pool:
    """Rows that can be favored, best first.

    `unchecked` are limits that had to be passed over for want of numbers; `unknown` counts the rows that were passed
    over instead, because others do have the numbers.
    """

    rows: pd.DataFrame
    unchecked: tuple[Limit, ...]
    unknown: int


class _Decision:
    """A ranking with its flags, under a request."""

    def __init__(self, ranking: Ranking, flags: dict[str, str], request: Request) -> None:
        self.ranking, self.flags, self.request = ranking, flags, request
        self.objective = ranking.objective
        ordered = self._best_first(ranking.rows)
        is_flagged = ordered["name"].isin(list(flags))
        self.eligible, self.flagged = ordered[~is_flagged], ordered[is_flagged]

    def _best_first(self, rows: pd.DataFrame) -> pd.DataFrame:
        if self.ranking.ranked_by == "published front":
            # On a front of two metrics the least accurate is the best in the other one.
            return rows.sort_values(["top1", "name"], kind="stable")
        sign = -1 if METRICS[self.objective].better == "higher" else 1
        keys = pd.DataFrame(
            {
                "cost": sign * numbers(rows, self.objective),
                "error": -numbers(rows, "top1"),
                "params": numbers(rows, "params") if "params" in rows.columns else np.nan,
                "name": rows["name"],
            },
            index=rows.index,
        )
        return rows.loc[keys.sort_values(list(keys.columns), kind="stable").index]

    def pool(self, rows: pd.DataFrame, limits: Sequence[Limit]) -> _Pool:
        """The rows that keep all limits; where not even two rows have the limits' numbers, those that break none."""
        kept, broken, known = (np.full(len(rows), value) for value in (True, False, True))
        for limit in limits:
            values = numbers(rows, limit.metric) if limit.metric in rows.columns else np.full(len(rows), np.nan)
            keeps = limit.kept_by(values)
            kept &= keeps
            known &= ~np.isnan(values)
            broken |= ~keeps & ~np.isnan(values)
        unbroken = rows[~broken]
        if kept.any() or known.sum() >= LEAST_TO_COMPARE:
            return _Pool(rows[kept], (), len(unbroken) - int(kept.sum()))
        lacking = [limit for limit in limits if limit.metric not in rows or unbroken[limit.metric].isna().any()]
        return _Pool(unbroken, tuple(lacking), 0)

    def chances(self, pool: _Pool, draws: int, seed: int) -> dict[Hashable, float] | None:
        """By row, how often it is the best in draws from the intervals; a published front has no numbers to draw."""
        if self.ranking.ranked_by == "published front":
            return None
        limits = [limit for limit in self.request.limits if limit not in pool.unchecked]
        complete = self.eligible.dropna(subset=[limit.metric for limit in limits])
        chances = chance_of_being_best(complete, self.objective, limits, draws=draws, seed=seed)
        return None if chances is None else dict(zip(complete.index, chances.tolist(), strict=True))

    def choice(self, at: Hashable, row: pd.Series, chances: dict[Hashable, float] | None) -> Choice:
        # Where a published front decides, a stray number of the objective did not: showing it would mislead.
        objective = [self.objective] if self.ranking.ranked_by == "numbers" else []
        shown = dict.fromkeys(["top1", *objective, *(limit.metric for limit in self.request.limits), "params"])
        readings = {metric: _reading(row, metric) for metric in shown if pd.notna(row.get(metric))}
        img_size = None if pd.isna(row["img_size"]) else int(row["img_size"])
        return Choice(
            name=str(row["name"]),
            title=_known_text(row, "title"),
            family=_known_text(row, "family"),
            how=_known_text(row, "how"),
            img_size=img_size,
            metrics=readings,
            unverified=tuple(limit.option for limit in self.request.limits if limit.metric not in readings),
            probability_best=None if chances is None else chances.get(at),
            flag=self.flags.get(str(row["name"])),
            command=_command(str(row["name"]), img_size, self.request.dataset),
        )

    def why(self, pool: _Pool) -> Why:
        favored = pool.rows.iloc[0]
        wanted = dict.fromkeys(["top1", self.objective, *(limit.metric for limit in self.request.limits)])
        compared = [metric for metric in wanted if metric in self.eligible.columns]
        others = [*compared, *(["params"] if "params" in self.eligible.columns else [])]
        return Why(
            summary=self._summary(pool),
            binding=self._binding(str(favored["name"])),
            dominates=dominated_by(favored, self.eligible, compared),
            gives_up=given_up(pool.rows, [metric for metric in dict.fromkeys(others) if metric != self.objective]),
        )

    def _summary(self, pool: _Pool) -> str:
        favored, best = pool.rows.iloc[0], "highest" if METRICS[self.objective].better == "higher" else "lowest"
        of = _models(len(self.eligible))
        if self.request.limits:
            of = f"{len(pool.rows)} of {of} that keep the limits{' as far as known' if pool.unchecked else ''}"
        if self.ranking.ranked_by == "published front":
            return (
                f"{favored['name']} should have the {best} {self.objective} of the {of}: "
                "it is the least accurate of them on the published front"
            )
        value = format_quantity(float(favored[self.objective]), METRICS[self.objective].unit)
        return f"{favored['name']} has the {best} {self.objective} ({value}) of the {of}"

    def _binding(self, favored: str) -> tuple[Binding, ...]:
        """The limits without which another model would be favored."""
        found = []
        for limit in self.request.limits:
            rows = self.pool(self.eligible, [other for other in self.request.limits if other is not limit]).rows
            if len(rows) and str(rows["name"].iloc[0]) != favored:
                found.append(Binding(limit.option, str(rows["name"].iloc[0])))
        return tuple(found)

    def notes(self, pool: _Pool, basis: AccuracyBasis | None, chances: dict[Hashable, float] | None) -> list[str]:
        """What the reader has to know about the numbers."""
        told = []
        if pool.unchecked:
            told.append(f"not checked for want of numbers: {', '.join(limit.option for limit in pool.unchecked)}")
        if pool.unknown:
            told.append(f"not considered: {_models(pool.unknown)} for which a limit's number is not known")
        if self.request.prefer is None:
            told.append("nothing is preferred, so the most accurate model that keeps the limits is favored")
        elif not any(limit.metric == "top1" for limit in self.request.limits):
            told.append("no accuracy is asked for, so none is kept; --min-accuracy asks for one")
        sources = " and ".join(sorted(self.eligible["top1_source"].dropna().unique()))
        told.append(f"accuracy: {sources}; {basis.describe() if basis else 'several pipelines, which hardly compare'}")
        if self.ranking.ranked_by == "numbers" and self.objective not in QUALITIES | COUNTED and len(self.eligible):
            source, setting = (self.eligible[f"{self.objective}_{what}"].iloc[0] for what in ("source", "setting"))
            told.append(f"{self.objective}: {source}; {setting}")
            if self.request.device not in (None, setting.split(", ")[0]):
                told.append(f"nothing is known of {self.objective} on {self.request.device}; a like device stands in")
        if chances:
            told.append("probabilities cover test images and measurement noise, not the luck of a training run")
        if len(self.flagged):
            told.append(f"flagged and not favored: {_models(len(self.flagged))} with another configuration's accuracy")
        if not len(self.eligible):
            told.append("no model is left to favor: all are flagged")
        return told

    def next_steps(self, pool: _Pool) -> tuple[str, ...]:
        """What to run so that this decision rests on the user's own measurements."""
        used = dict.fromkeys([self.objective, *(limit.metric for limit in self.request.limits)])
        measurable = [metric for metric in used if metric not in QUALITIES]
        shown = (pool.rows if len(pool.rows) else self.eligible).head(self.request.top)
        names = [
            str(row["name"])
            for _, row in shown.iterrows()
            if any(row.get(f"{metric}_source") != "measured" for metric in measurable)
        ]
        if not names:
            return ()
        return (f"favor measure {' '.join(dict.fromkeys(names))} --into my-study", "favor recommend --study my-study")


def _models(count: int) -> str:
    return f"{count} model" + ("" if count == 1 else "s")


def _reading(row: pd.Series, metric: str) -> Reading:
    def own(suffix: str) -> float | None:
        value = row.get(f"{metric}{suffix}")
        return None if value is None or pd.isna(value) else float(value)

    return Reading(
        value=float(row[metric]),
        unit=METRICS[metric].unit,
        low=own("_low"),
        high=own("_high"),
        source=_known_text(row, f"{metric}_source"),
        setting=_known_text(row, f"{metric}_setting"),
        provenance=_known_text(row, f"{metric}_provenance"),
    )


def _known_text(row: pd.Series, column: str) -> str | None:
    value = row.get(column)
    return None if value is None or pd.isna(value) or value == "" else str(value)


def _command(name: str, img_size: int | None, dataset: str) -> str:
    """The Python that makes the model for the data set.

    >>> _command("vit_s16", 384, "cifar10")
    'favor.create_model("vit_s16", num_classes=10, img_size=384)'
    """
    arguments = [f'"{name}"']
    if dataset in _CLASSES:
        arguments.append(f"num_classes={_CLASSES[dataset]}")
    if img_size not in (None, _USUAL_IMG_SIZE):
        arguments.append(f"img_size={img_size}")
    return f"favor.create_model({', '.join(arguments)})"
