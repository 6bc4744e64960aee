"""Which model to favor under the user's limits, and why.

A ranking uses accuracies of one pipeline and costs of one setting. A model whose accuracy belongs to another
configuration is flagged and never favored. A model without a number for a limit does not meet it; if no model has one,
nothing is favored and the answer says what to measure. Without numbers for the preferred cost, the paper's advice for
its device is used if there is any, and the answer says so.
"""

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from favor.analyze.chances import chance_of_being_best
from favor.analyze.comparison import Comparison, origin_notes
from favor.analyze.deviations import deviations_by_row
from favor.analyze.guide import GuideEntry
from favor.analyze.limits import Limit, relax
from favor.analyze.ranking import PREFERENCES, PUBLISHED_DEVICE, Ranking, Request, left_out, rank
from favor.analyze.reasons import dominated_by, given_up
from favor.analyze.recommendation import Binding, Choice, Recommendation, Why, reading_of, text_in
from favor.analyze.selection import fitting, numbers
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
    of = None if request.among is None else fitting(table, request.among)
    comparison = Comparison(table, request.scope, metrics=request.metrics, of=of)
    ranking = rank(comparison, request, published_fronts)
    decision = _Decision(ranking, deviations_by_row(table, ranking.rows), request)
    undecided = decision.undecided()
    pool = decision.eligible[:0] if undecided else decision.keeping(decision.eligible, request.limits)
    chances = decision.chances(draws, seed)
    choices = tuple(decision.choice(at, row, chances) for at, row in pool.head(request.top).iterrows())
    flagged = decision.keeping(decision.flagged, request.limits).head(0 if undecided else request.top)
    return Recommendation(
        favored=choices[0] if choices else None,
        runners_up=choices[1:],
        flagged=tuple(decision.choice(at, row, None) for at, row in flagged.iterrows()),
        limits=request.limits,
        relax=relax(decision.eligible, request.limits) if request.limits and not choices and not undecided else None,
        undecided=undecided,
        why=decision.why(pool) if choices else None,
        objective=decision.objective,
        ranked_by=decision.ranking.ranked_by,
        accuracy_basis=str(comparison.basis or f"{request.dataset}, any pipeline"),
        considered=len(decision.ranking.rows),
        notes=(
            *ranking.notes,
            *left_out(comparison, ranking, request),
            *decision.notes(pool, comparison, chances),
        ),
        next_steps=decision.next_steps(pool),
    )


class _Decision:
    """A ranking with its flags, under a request."""

    def __init__(self, ranking: Ranking, flags: Sequence[str | None], request: Request) -> None:
        self.ranking, self.request = ranking, request
        self.flags = dict(zip(ranking.rows.index, flags, strict=True))
        self.objective = ranking.objective
        ordered = self._best_first(ranking.rows)
        is_flagged = np.array([self.flags[at] is not None for at in ordered.index], dtype=bool)
        self.eligible, self.flagged = ordered[~is_flagged], ordered[is_flagged]

    def _best_first(self, rows: pd.DataFrame) -> pd.DataFrame:
        objective = "top1" if self.ranking.undecided else self.objective
        keys = pd.DataFrame(
            {
                "cost": METRICS[objective].sign * numbers(rows, objective),
                "error": -numbers(rows, "top1"),
                "params": numbers(rows, "params") if "params" in rows.columns else np.nan,
                "name": rows["name"],
            },
            index=rows.index,
        )
        return rows.loc[keys.sort_values(list(keys.columns), kind="stable").index]

    def undecided(self) -> tuple[str, ...]:
        """What cannot be checked or ranked for lack of numbers; a limit is never ignored."""
        where = f" in {self.ranking.setting}" if self.ranking.setting and str(self.ranking.setting) else ""
        unchecked = [
            f"{limit.option} cannot be checked: no numbers for {limit.metric}"
            f"{where if METRICS[limit.metric].depends_on_device else ''}"
            for limit in self.request.limits
            if len(self.eligible) and np.isnan(limit.values_of(self.eligible)).all()
        ]
        return (*([self.ranking.undecided] if self.ranking.undecided else []), *unchecked)

    def keeping(self, rows: pd.DataFrame, limits: Sequence[Limit]) -> pd.DataFrame:
        """The rows that are known to keep all limits."""
        return rows[
            np.logical_and.reduce([np.full(len(rows), True), *(lim.kept_by(lim.values_of(rows)) for lim in limits)])
        ]

    def not_breaking(self, rows: pd.DataFrame, limits: Sequence[Limit]) -> pd.DataFrame:
        """The rows that are not known to break a limit."""
        unbroken = np.full(len(rows), True)
        for limit in limits:
            values = limit.values_of(rows)
            unbroken &= limit.kept_by(values) | np.isnan(values)
        return rows[unbroken]

    def chances(self, draws: int, seed: int) -> dict[Hashable, float] | None:
        """By row, how often it is the best in draws from the intervals; a published front has no numbers to draw."""
        if self.ranking.ranked_by == "published front" or self.undecided():
            return None
        complete = self.eligible.dropna(subset=[limit.metric for limit in self.request.limits])
        chances = chance_of_being_best(complete, self.objective, self.request.limits, draws=draws, seed=seed)
        return None if chances is None else dict(zip(complete.index, chances.tolist(), strict=True))

    def choice(self, at: Hashable, row: pd.Series, chances: dict[Hashable, float] | None) -> Choice:
        shown = dict.fromkeys(["top1", self.objective, *(limit.metric for limit in self.request.limits), "params"])
        readings = {metric: reading_of(row, metric) for metric in shown if pd.notna(row.get(metric))}
        img_size = None if pd.isna(row["img_size"]) else int(row["img_size"])
        return Choice(
            name=str(row["name"]),
            title=text_in(row, "title"),
            family=text_in(row, "family"),
            how=text_in(row, "how"),
            img_size=img_size,
            metrics=readings,
            probability_best=None if chances is None else chances.get(at),
            flag=self.flags[at],
            command=_command(
                str(row["name"]),
                img_size,
                self.request.dataset,
                text_in(row, "top1_pipeline") if self.request.with_weights else None,
            ),
        )

    def why(self, pool: pd.DataFrame) -> Why:
        favored = pool.iloc[0]
        wanted = dict.fromkeys(["top1", self.objective, *(limit.metric for limit in self.request.limits)])
        compared = [metric for metric in wanted if metric in self.eligible.columns]
        others = [*compared, *(["params"] if "params" in self.eligible.columns else [])]
        ties = tuple(pool["name"].iloc[1:][(pool[self.objective] == favored[self.objective]).to_numpy()[1:]])
        return Why(
            summary=self._summary(pool, ties),
            ties=ties,
            binding=self._binding(str(favored["name"])),
            dominates=dominated_by(favored, self.eligible, compared),
            gives_up=given_up(pool, [metric for metric in dict.fromkeys(others) if metric != self.objective]),
        )

    def _summary(self, pool: pd.DataFrame, ties: Sequence[str]) -> str:
        favored, best = pool.iloc[0], "highest" if METRICS[self.objective].better == "higher" else "lowest"
        of = _models(len(self.eligible))
        if self.ranking.ranked_by == "published front":
            of = f"{of} in families on the paper's {PUBLISHED_DEVICE.upper()} front"
        if self.request.limits:
            of = f"{_models(len(pool))} within the limits (of {of})"
        value = format_quantity(float(favored[self.objective]), METRICS[self.objective].unit)
        tied = f", tied with {', '.join(ties)} (then by accuracy, parameters, name)" if ties else ""
        return f"{favored['name']} has the {best} {METRICS[self.objective].title.lower()} ({value}) of the {of}{tied}"

    def _binding(self, favored: str) -> tuple[Binding, ...]:
        """The limits without which another model would be favored."""
        binding = []
        for limit in self.request.limits:
            rows = self.keeping(self.eligible, [other for other in self.request.limits if other is not limit])
            if len(rows) and str(rows["name"].iloc[0]) != favored:
                binding.append(Binding(limit.option, str(rows["name"].iloc[0])))
        return tuple(binding)

    def notes(self, pool: pd.DataFrame, comparison: Comparison, chances: dict[Hashable, float] | None) -> list[str]:
        """What the reader has to know about the numbers."""
        notes = []
        unknown = len(self.not_breaking(self.eligible, self.request.limits)) - len(pool)
        if self.request.limits and unknown and not self.undecided():
            notes.append(f"not considered: {_models(unknown)} without a number for one of the limits")
        if self.request.prefer is None:
            which = " within the limits" if self.request.limits else ""
            notes.append(f"no preference is given, so the most accurate model{which} is favored")
        elif not any(limit.metric == "top1" for limit in self.request.limits):
            notes.append("accuracy is not limited; --min-accuracy sets a limit")
        sources = " and ".join(sorted(self.eligible["top1_source"].dropna().unique())) or "of no eligible model"
        notes.append(comparison.accuracy_note(sources))
        notes += self._seed_notes()
        notes += self._device_notes()
        if chances and not (self.eligible["top1_seeds"] > 1).any():
            notes.append("probabilities cover test images and measurement noise, not the variation between trainings")
        if len(self.flagged):
            notes.append(
                f"flagged and not favored: {_models(len(self.flagged))} with the accuracy of another configuration"
            )
        if not len(self.eligible):
            notes.append("no model is left to favor: all are flagged" if len(self.flagged) else "no model is known")
        return notes

    def _seed_notes(self) -> list[str]:
        """How many seeds stand behind the accuracies, and who has not finished training."""
        seeds, notes = self.eligible["top1_seeds"], []
        if (seeds > 1).any():
            how = "the mean" if self.request.seeds == "mean" else "the best"
            several = int((seeds > 1).sum())
            notes.append(f"accuracy is {how} over seeds ({seeds.max():.0f} at most) for {_models(several)}")
        early = self.eligible.loc[self.eligible["top1_unfinished"].notna(), "name"]
        return [*notes, f"unfinished trainings: {', '.join(early)}"] if len(early) else notes

    def _device_notes(self) -> list[str]:
        """Where the numbers come from that a device gave, and whether it is the device asked for."""
        setting, device, notes = self.ranking.setting, self.request.device, []
        if setting is None:
            return []
        for metric in dict.fromkeys([self.objective, *(limit.metric for limit in self.request.limits)]):
            origin = origin_notes(self.eligible, [metric])
            notes += origin
            if origin and device is not None and not setting.is_on(device):
                notes.append(f"{metric} is not known on {device}; a similar device is used instead")
        return notes

    def next_steps(self, pool: pd.DataFrame) -> tuple[str, ...]:
        """What to run so that this decision rests on the user's own measurements."""
        preferred = PREFERENCES[self.request.prefer][0] if self.request.prefer else self.objective
        used = dict.fromkeys([preferred, self.objective, *(limit.metric for limit in self.request.limits)])
        measurable = [metric for metric in used if METRICS[metric].group != "quality"]
        shown = pool if len(pool) else self.not_breaking(self.eligible, self.request.limits)
        names = [
            str(row["name"])
            for _, row in (shown if len(shown) else self.eligible).head(self.request.top).iterrows()
            if any(row.get(f"{metric}_source") != "measured" for metric in measurable)
        ]
        if not names:
            return ()
        measure = f"favor measure {' '.join(dict.fromkeys(names))} --study my-study"
        return measure, " ".join(["favor recommend --study my-study", *self.request.options()])


def _models(count: int) -> str:
    return f"{count} model" + ("" if count == 1 else "s")


def _command(name: str, img_size: int | None, dataset: str, weights: str | None = None) -> str:
    """The Python that makes the model for the data set, with the weights of a pipeline of timm where it is given.

    >>> _command("vit_s16", 384, "cifar10")
    'favor.create_model("vit_s16", num_classes=10, img_size=384)'
    >>> _command("resnet50", 224, "imagenet-1k", "timm:a1_in1k")
    'favor.create_model("resnet50", pretrained="a1_in1k")'
    """
    arguments = [f'"{name}"']
    if dataset in _CLASSES:
        arguments.append(f"num_classes={_CLASSES[dataset]}")
    if img_size not in (None, _USUAL_IMG_SIZE):
        arguments.append(f"img_size={img_size}")
    if weights is not None:
        arguments.append(f'pretrained="{weights.removeprefix("timm:")}"')
    return f"favor.create_model({', '.join(arguments)})"
