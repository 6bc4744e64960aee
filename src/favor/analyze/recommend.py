"""Which model to favor under the user's limits, and why.

A ranking uses accuracies of one pipeline and costs of one setting. A model whose accuracy belongs to another
configuration is flagged and never favored. A model is favored if it is the best in most draws from the intervals;
otherwise the answer names the models that it is undecided between, and what to measure. A model without a number for a
limit does not meet it; if no model has one, nothing is favored. Without numbers for the preferred cost, the paper's
advice for its device is used if there is any, and the answer says so.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from favor.analyze.best_runtime import in_best_runtime, in_precision, in_runtime
from favor.analyze.comparison import Comparison, alone_in_its_training
from favor.analyze.creation import AUTOCAST, creation, deployment
from favor.analyze.deviations import deviations_by_row
from favor.analyze.flags import disturbance
from favor.analyze.guide import GuideEntry
from favor.analyze.intervals import has_known_uncertainty
from favor.analyze.limits import Limit, Relax, Relaxation, relax
from favor.analyze.load_estimate import ENOUGH, at_load
from favor.analyze.next_steps import NextSteps, deciding_metrics, meter_note, next_steps
from favor.analyze.origins import origin_notes, said_source
from favor.analyze.pareto import pareto
from favor.analyze.ranking import (
    PUBLISHED_DEVICE,
    SIMULATED_ONES,
    Ranking,
    Request,
    left_out,
    rank,
    with_further_devices,
)
from favor.analyze.reasons import dominated_by, given_up, undisturbed, without_intervals
from favor.analyze.recommendation import Binding, Choice, Recommendation, ToDecide, Why, reading_of, text_in, weights_of
from favor.analyze.selection import fitting, numbers
from favor.analyze.setting import column_of
from favor.analyze.trainings import in_training, not_comparable, own_on_other_datasets, unequal_lengths
from favor.analyze.verdict import LIKELY, Verdict, judge, what_decides
from favor.metrics import METRICS
from favor.text import first_few, plural
from favor.units import format_quantity
from favor.zoo.cards import TIMM

_MOST_NAMED = 5
_OF_WEIGHTS = (
    "accuracy: published by timm for each checkpoint; they differ in training data, teacher and length of training, so "
    "this ranks weights, not architectures"
)


def recommend(
    table: pd.DataFrame,
    request: Request,
    published_fronts: Sequence[GuideEntry] = (),
    *,
    draws: int = 4000,
) -> Recommendation:
    """The favored model of a wide table under a request; without `draws` the best by the numbers alone."""
    of = None if request.among is None else fitting(table, request.among)
    at_limits = at_load(table, request.limits)
    considered = in_precision(in_runtime(at_limits, request.runtime), request.precision)
    comparison = Comparison(considered, request.scope, metrics=request.metrics, of=of)
    fronts = () if request.of_timm else published_fronts
    ranked = in_best_runtime(rank(comparison, request, fronts), comparison, request)
    ranking = with_further_devices(ranked, comparison, request)
    if ranking.ranked_by == "published front":
        draws = 0  # a published front has no numbers to draw from; its first model is favored
    decision = _Decision(ranking, deviations_by_row(table, ranking.rows), request, comparison)
    missing = decision.undecided()
    pool = decision.eligible[:0] if missing else decision.keeping(decision.eligible, decision.limits)
    verdict = decision.verdict(pool, draws)
    shown = [at for at in pool.index.tolist() if at != verdict.favored and at not in verdict.contenders]
    shown = shown[: max(0, request.top - max(1, len(verdict.contenders)))]
    flagged = decision.keeping(decision.flagged, decision.limits).head(0 if missing else request.top)
    choose = decision.chooser(verdict)
    steps = decision.next_steps(pool, table)
    return Recommendation(
        favored=None if verdict.favored is None else choose(verdict.favored),
        undecided_between=tuple(choose(at) for at in verdict.contenders),
        to_decide=decision.to_decide(verdict, comparison, draws),
        runners_up=tuple(choose(at) for at in shown),
        flagged=tuple(choose(at) for at in flagged.index.tolist()),
        limits=decision.limits,
        relax=decision.relax(draws) if decision.limits and not len(pool) and not missing else None,
        undecided=(*missing, *decision.undecided_between(verdict, pool, choose)),
        why=None if verdict.favored is None else decision.why(pool, verdict, choose, draws),
        objective=decision.objective,
        ranked_by=decision.ranking.ranked_by,
        accuracy_basis=str(comparison.basis or f"{request.dataset}, any pipeline"),
        considered=_count(decision.ranking.rows),
        notes=(
            *ranking.notes,
            *left_out(comparison, ranking, request),
            *decision.notes(pool, comparison, verdict),
        ),
        next_steps=steps.commands,
        next_minutes=steps.minutes,
    )


class _Decision:
    """A ranking with its flags, under a request."""

    def __init__(self, ranking: Ranking, flags: Sequence[str | None], request: Request, comparison: Comparison) -> None:
        self.ranking, self.request, self.limits = ranking, request, ranking.limits
        self.trained_alone = alone_in_its_training(comparison)
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
        """Why no model can be favored: what cannot be checked, ranked or compared. A limit is never ignored."""
        where = f" in {self.ranking.setting}" if self.ranking.setting and str(self.ranking.setting) else ""
        if self.request.of_timm and self.request.device is None:
            where += SIMULATED_ONES
        unchecked = [
            f"{limit} cannot be checked: no numbers for {limit.metric}"
            f"{where if METRICS[limit.metric].depends_on_device and limit.device is None else ''}"
            for limit in self.limits
            if len(self.eligible) and np.isnan(limit.values_of(self.eligible)).all()
        ]
        why = not_comparable(self.eligible) if self._accuracy_decides else None
        uncompared = [why] if why else []
        alone = [self.trained_alone] if self.trained_alone else []
        return (*([self.ranking.undecided] if self.ranking.undecided else []), *alone, *unchecked, *uncompared)

    @property
    def _accuracy_decides(self) -> bool:
        return self.objective == "top1" or any(limit.metric == "top1" for limit in self.limits)

    def verdict(self, pool: pd.DataFrame, draws: int) -> Verdict:
        """Who is the best in most draws."""
        if self.undecided():
            return Verdict(None, None, (), 0.0)
        return judge(self._complete(self.limits), pool, self.objective, self.limits, draws=draws)

    def _complete(self, limits: Sequence[Limit]) -> pd.DataFrame:
        """The eligible rows with all numbers that decide under these limits."""
        present = [limit.column for limit in limits if limit.column in self.eligible.columns]
        return self.eligible.dropna(subset=present)

    def undecided_between(self, verdict: Verdict, pool: pd.DataFrame, choose: Callable[[int], Choice]) -> list[str]:
        """The models that the answer lies between, in words."""
        if not verdict.contenders or verdict.chances is None:
            return []
        beyond = {at: "" if at in pool.index else ", just beyond a limit" for at in verdict.contenders}
        chances = {at: "unknown" if math.isnan(chance) else f"{chance:.0%}" for at, chance in verdict.chances.items()}
        names = [f"{choose(at).called} ({chances[at]}{what})" for at, what in beyond.items()]
        nobody = [f"no model that meets the limits ({verdict.nobody:.0%})"] if verdict.nobody >= LIKELY else []
        why = "none is the best in most draws from the intervals"
        if verdict.too_brief:
            brief = " and ".join(choose(at).called for at in verdict.too_brief)
            why = f"{brief} may be the best (measured on a busy machine or contradictory, and without an interval)"
        return [f"undecided between {', '.join([*names, *nobody])}: {why}"]

    def to_decide(self, verdict: Verdict, comparison: Comparison, draws: int) -> ToDecide | None:
        """What to measure if the answer is open."""
        if not verdict.contenders:
            return None
        rows = _with_training_times(self._complete(self.limits), comparison.whole)
        return what_decides(rows, verdict, self.objective, self.limits, self.request, comparison.whole, draws=draws)

    def keeping(self, rows: pd.DataFrame, limits: Sequence[Limit]) -> pd.DataFrame:
        """The rows that are known to meet all limits."""
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

    @property
    def _fixed_limits(self) -> list[Limit]:
        """The limits on what no measurement changes: accuracy and parameters."""
        return [limit for limit in self.limits if not METRICS[limit.metric].depends_on_device]

    @property
    def _within_fixed_limits(self) -> pd.DataFrame:
        return self.not_breaking(self.eligible, self._fixed_limits)

    def relax(self, draws: int) -> Relax:
        """How to move the limits, where no model meets them, and what that gives."""
        nearest = relax(self.eligible, self.limits)
        if not draws:
            return nearest
        return replace(
            nearest,
            each=tuple(self._decided(way, draws) for way in nearest.each),
            together=None if nearest.together is None else self._decided(nearest.together, draws),
        )

    def _decided(self, way: Relaxation, draws: int) -> Relaxation:
        """The limits moved until a model is favored: to the nearest model's numbers, or to the ends of its intervals.

        If both leave the answer open, the models that it lies between are named.
        """
        verdicts = []
        for moved in (way, way.at_interval_ends(self.eligible, self.limits)):
            limits = moved.applied_to(self.limits)
            verdict = judge(
                self._complete(limits), self.keeping(self.eligible, limits), self.objective, limits, draws=draws
            )
            if verdict.favored is not None:
                row = self.eligible.loc[[verdict.favored]].iloc[0]
                img_size = None if pd.isna(row["img_size"]) else int(row["img_size"])
                return replace(moved, name=str(row["name"]), img_size=img_size)
            verdicts.append(verdict)
        contenders = self.eligible.loc[list(verdicts[0].contenders), "name"].astype(str)
        return replace(way, undecided_between=tuple(dict.fromkeys(contenders)) or (way.name,))

    def chooser(self, verdict: Verdict) -> Callable[[int], Choice]:
        """What makes a choice of a row."""
        chances, front = verdict.chances or {}, self._front()

        def choice(at: int) -> Choice:
            row = self.ranking.rows.loc[[at]].iloc[0]
            shown = dict.fromkeys(["top1", self.objective, *(limit.column for limit in self.limits), "params"])
            chance = chances.get(at, math.nan)
            img_size = None if pd.isna(row["img_size"]) else int(row["img_size"])
            weights = weights_of(row)
            tag = None if weights is None else weights.tag
            name, runtime, precision = str(row["name"]), text_in(row, "runtime"), text_in(row, "run_precision")
            # Published and simulated numbers of GPUs are in autocast; it is named where precisions compete.
            in_line = precision if bool(row.get("names_precision", False)) or precision not in AUTOCAST else None
            run = text_in(row, "top1_run")
            folder = None if run is None else self.request.folder_of(run)
            command = creation(name, img_size, self.request.dataset, text_in(row, "origin"), tag)
            return Choice(
                name=name,
                title=text_in(row, "title"),
                family=text_in(row, "family"),
                how=text_in(row, "how"),
                img_size=img_size,
                metrics={column: reading_of(row, column) for column in shown if pd.notna(row.get(column))},
                probability_best=None if math.isnan(chance) else chance,
                on_front=None if front is None else at in front,
                flag=self.flags[at],
                runtime=runtime,
                precision=precision,
                command=command,
                deployment=deployment(name, command, runtime, in_line, tag, img_size, folder),
                weights=weights,
                names_precision=bool(row.get("names_precision", False)),
                training_run=folder,
            )

        return choice

    def _front(self) -> set[int] | None:
        """The rows on the Pareto front of accuracy and what is preferred; None if nothing is."""
        rows, cost = self.ranking.rows, self.objective
        if cost == "top1" or self.ranking.undecided or not len(rows) or unequal_lengths(self.eligible):
            return None
        front = pareto(rows, ["top1", cost], flags=[self.flags[at] for at in rows.index], draws=0)
        return set(rows.index[front.rows[front.member]].tolist())

    def why(self, pool: pd.DataFrame, verdict: Verdict, choose: Callable[[int], Choice], draws: int) -> Why:
        called = {at: choose(at).called for at in (pool.index.tolist()[0], verdict.favored) if at is not None}
        first, pool = pool.iloc[0], pd.concat([pool.loc[[verdict.favored]], pool.drop(index=verdict.favored)])
        favored = pool.iloc[0]
        accuracy = [] if unequal_lengths(self.eligible) else ["top1"]
        wanted = dict.fromkeys([*accuracy, self.objective, *(limit.metric for limit in self.limits)])
        compared = [metric for metric in wanted if metric in self.eligible.columns]
        others = [*compared, *(["params"] if "params" in self.eligible.columns else [])]
        sound = undisturbed(self.eligible, compared)
        own = [metric for metric in compared if pd.notna(favored[metric])]
        dominates = dominated_by(favored, sound, own) if favored.name in sound.index else ()
        ties = tuple(pool["name"].iloc[1:][(pool[self.objective] == favored[self.objective]).to_numpy()[1:]])
        return Why(
            summary=self._summary(pool, ties, first, verdict, called),
            ties=ties,
            binding=self._binding(str(favored["name"]), draws),
            dominates=dominates,
            gives_up=given_up(pool, [metric for metric in dict.fromkeys(others) if metric != self.objective]),
            without_intervals=without_intervals(dominates, favored.name, sound, own) if dominates else (),
        )

    def _summary(
        self,
        pool: pd.DataFrame,
        ties: Sequence[str],
        first: pd.Series,
        verdict: Verdict,
        called: Mapping[Hashable, str],
    ) -> str:
        favored, best = pool.iloc[0], "highest" if METRICS[self.objective].better == "higher" else "lowest"
        of = plural(_count(self.eligible), "model")
        where = ""
        if self.ranking.ranked_by == "published front":
            where = f" in families on the paper's {PUBLISHED_DEVICE.upper()} front"
        if self.limits:
            where = f" within the limits (of {of}{where})"
        if _count(pool) == 1:
            return f"{called[favored.name]} is the only model{where}"
        of = f"{plural(_count(pool), 'model')}{where}"
        value = format_quantity(float(favored[self.objective]), METRICS[self.objective].unit)
        if first.name != favored.name and verdict.chances is not None:
            value = format_quantity(float(first[self.objective]), METRICS[self.objective].unit)
            chance = verdict.chances[pool.index.tolist()[0]]
            share = "most draws" if math.isnan(chance) else f"{chance:.0%} of draws"
            best_by_numbers = f"by the numbers alone it is {called[first.name]} ({value})"
            return f"{called[favored.name]} is the best of the {of} in {share}; {best_by_numbers}"
        tied = f", tied with {', '.join(ties)} (then by accuracy, parameters, name)" if ties else ""
        return (
            f"{called[favored.name]} has the {best} {METRICS[self.objective].title.lower()} ({value}) of the {of}{tied}"
        )

    def _binding(self, favored: str, draws: int) -> tuple[Binding, ...]:
        """The limits without which another model would be favored, or could be."""
        binding = []
        for limit in self.limits:
            others = [other for other in self.limits if other is not limit]
            pool = self.keeping(self.eligible, others)
            if len(pool) == len(self.keeping(pool, [limit])):
                continue
            verdict = judge(self._complete(others), pool, self.objective, others, draws=draws)
            likely = verdict.contenders if verdict.favored is None else (verdict.favored,)
            instead = [str(name) for name in self.eligible.loc[list(likely), "name"] if name != favored]
            if instead:
                binding.append(Binding(str(limit), instead[0], certain=verdict.favored is not None))
        return tuple(binding)

    def notes(self, pool: pd.DataFrame, comparison: Comparison, verdict: Verdict) -> list[str]:
        """What the reader has to know about the numbers."""
        notes = []
        unknown = _count(self.not_breaking(self.eligible, self.limits)) - _count(pool)
        if self.limits and unknown and not self.undecided():
            notes.append(f"not considered: {plural(unknown, 'model')} without a number for one of the limits")
        if self.request.prefer is None:
            which = " within the limits" if self.limits else ""
            notes.append(f"models{which} are ranked by accuracy")
        elif not any(limit.metric == "top1" for limit in self.limits):
            notes.append("accuracy is not limited; --min-accuracy sets a limit")
        sources = " and ".join(sorted(self.eligible["top1_source"].dropna().unique())) or "of no eligible model"
        notes.append(_OF_WEIGHTS if self.request.by_weights else comparison.accuracy_note(sources))
        notes += own_on_other_datasets(comparison.whole, self.request.dataset)
        notes += self._sources_note()
        notes += self._seed_notes()
        notes += self._unfinished_note(comparison)
        notes += self._device_notes()
        notes += self._load_notes()
        notes += self._certainty_notes(verdict)
        if self.undecided():
            notes += self._fixed_limits_note()
        if verdict.favored is None:
            notes += meter_note(deciding_metrics(self.ranking, self.request))
        if len(self.flagged):
            flagged = plural(len(self.flagged), "model")
            notes.append(f"flagged and not favored: {flagged} with the accuracy of another configuration")
        if not len(self.eligible):
            notes.append("no model is left to favor: all are flagged" if len(self.flagged) else "no model is known")
        if not self.request.of_timm and (more := _others_of_timm(comparison, self.request)):
            notes.append(f"{plural(more, 'network')} of timm with records can be ranked, too: --among timm")
        return notes

    def _fixed_limits_note(self) -> list[str]:
        """Which limits to relax if measuring the missing numbers would not help."""
        way = None if len(self._within_fixed_limits) else relax(self.eligible, self._fixed_limits).together
        if way is None:
            return []
        moved = " and ".join(f"{limit.option} to {limit.text}" for limit in way.limits)
        options = " and ".join(map(str, self._fixed_limits))
        return [f"no model meets {options}, whatever is measured; relax {moved} ({way.name})"]

    def _sources_note(self) -> list[str]:
        """How many numbers were measured, published and simulated, if their sources differ."""
        notes = []
        for metric in dict.fromkeys([self.objective, *(limit.metric for limit in self.limits)]):
            sources = column_of(self.eligible, f"{metric}_source").dropna().map(said_source).value_counts()
            if len(sources) > 1:
                notes.append(f"{metric}: " + ", ".join(f"{count} {source}" for source, count in sources.items()))
        return notes

    def _certainty_notes(self, verdict: Verdict) -> list[str]:
        """What the probabilities cover, and which models have numbers of unknown uncertainty."""
        decisive = list(dict.fromkeys([self.objective, *(limit.column for limit in self.limits)]))
        present = [column for column in decisive if column in self.eligible.columns]
        notes = []
        if self.ranking.ranked_by == "numbers" and verdict.favored is not None:
            favored = self.eligible.loc[[verdict.favored]]
            unknown = [column for column in present if not has_known_uncertainty(favored, column).all()]
            if unknown:
                nobody_has = not any(has_known_uncertainty(self.eligible, column).any() for column in unknown)
                what, name = ", ".join(unknown), favored["name"].iloc[0]
                why = f"no interval of {what} is known" if nobody_has else f"{name} has no interval of {what}"
                notes.append(f"certainty unknown: {why}")
        if verdict.chances and _count(self.eligible) > 1 and not (self.eligible["top1_seeds"] > 1).any():
            notes.append("probabilities cover test images and measurement noise, not variation between training runs")
        doubts = {
            (str(name), disturbance(flags))
            for column in present
            for name, flags in zip(self.eligible["name"], column_of(self.eligible, f"{column}_flags"), strict=True)
        }
        for doubt, why in (
            ("busy", "measured on a busy machine, so their numbers may be better"),
            ("contradictory", "contradictory measurements, so their numbers may be better or worse"),
        ):
            if names := sorted(name for name, of_model in doubts if of_model == doubt):
                notes.append(f"{why}: {first_few(names, _MOST_NAMED)}")
        unequal = None if self._accuracy_decides else unequal_lengths(self.eligible)
        return [*notes, f"accuracies do not decide here: {unequal}"] if unequal else notes

    def _seed_notes(self) -> list[str]:
        """How many seeds the accuracies have, and which models have unfinished runs."""
        seeds, notes = self.eligible["top1_seeds"], []
        if (seeds > 1).any():
            how = "the mean" if self.request.seeds == "mean" else "the best"
            several = int((seeds > 1).sum())
            notes.append(f"accuracy is {how} over seeds ({seeds.max():.0f} at most) for {plural(several, 'model')}")
        early = self.eligible.loc[self.eligible["top1_unfinished"].notna(), "name"]
        return [*notes, f"unfinished training runs: {', '.join(early)}"] if len(early) else notes

    def _unfinished_note(self, comparison: Comparison) -> list[str]:
        """Which models are not ranked because their training runs are unfinished."""
        if self.request.unfinished:
            return []
        early = in_training(fitting(comparison.whole, self.request.among), self.request.scope)
        trained = comparison.compare_in(None).trained
        ranked = set(zip(trained["name"], trained["img_size"], strict=True))
        sized = zip(early["name"], column_of(early, "img_size"), strict=True)
        early = early[np.array([model not in ranked for model in sized], dtype=bool)]
        if not len(early):
            return []
        epochs = early[["name"]].assign(last=column_of(early, "epochs"), planned=column_of(early, "recipe.epochs"))
        names = [
            f"{name} (epoch {last:g}{f' of {planned:g}' if pd.notna(planned) else ''})"
            for name, last, planned in epochs.groupby("name", as_index=False).max().itertuples(index=False)
        ]
        remedy = self._to_include(comparison, len(names))
        return [f"not ranked, because training is unfinished: {first_few(names, _MOST_NAMED)}; {remedy}"]

    def _to_include(self, comparison: Comparison, count: int) -> str:
        """What ranks so many models whose training is unfinished: the option, unless it makes nothing comparable."""
        them = "it" if count == 1 else "them"
        included = Comparison(comparison.whole, replace(self.request.scope, unfinished=True), metrics=("top1",))
        trained = fitting(included.compare_in(None).trained, self.request.among)
        if self._accuracy_decides and unequal_lengths(trained):
            return f"`favor resume {self.request.study}` finishes {them}, so that accuracies can be compared"
        return f"--unfinished includes {them}"

    def _device_notes(self) -> list[str]:
        """Where the numbers of a device come from, and whether it is the device that was asked for."""
        setting, device, notes = self.ranking.setting, self.request.device, []
        if setting is None:
            return []
        for metric in dict.fromkeys([self.objective, *(limit.metric for limit in self.limits)]):
            origin = origin_notes(self.eligible, [metric])
            notes += origin
            if origin and device is not None and not setting.is_on(device):
                notes.append(f"{metric} is not known on {device}; a similar device is used instead")
        return notes

    def _load_notes(self) -> list[str]:
        """Whose load was not measured."""
        if not any(limit.metric == "max_qps" for limit in self.limits):
            return []
        predicted = self.eligible.loc[column_of(self.eligible, "max_qps_source") == "predicted", "name"]
        how = f"max_qps is estimated by queueing theory from service times, up to {ENOUGH} times --qps, for"
        return (
            [f"{how} {first_few([str(name) for name in predicted], _MOST_NAMED)} (docs/load.md)"]
            if len(predicted)
            else []
        )

    def next_steps(self, pool: pd.DataFrame, table: pd.DataFrame) -> NextSteps:
        """What to run so that this decision rests on the user's own measurements."""
        shown = pool if len(pool) else self.not_breaking(self.eligible, self.limits)
        rows = (shown if len(shown) else self._within_fixed_limits).head(self.request.top)
        return next_steps(rows, self.ranking, self.request, table)


def _count(rows: pd.DataFrame) -> int:
    """The number of models in the rows; a model whose best runtime is in doubt has two rows."""
    return len(rows.drop_duplicates(["name", "img_size"]))


def _with_training_times(rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The rows with the hours that an epoch of the model took, from the user's own trainings."""
    if "train_hours_per_epoch" not in table.columns:
        return rows
    own = table[(table["source"] == "measured") & (table["task"] == "accuracy")] if "task" in table else table[:0]
    hours = own.groupby("name")["train_hours_per_epoch"].last()
    return rows.assign(train_hours_per_epoch=rows["name"].map(hours))


def _others_of_timm(comparison: Comparison, request: Request) -> int:
    """How many of timm's networks have records but are no candidates; their accuracies ship with favor."""
    if request.dataset != Request.dataset or request.any_pipeline or request.among is not None:
        return 0
    names = comparison.table["name"]
    return int(names[names.str.startswith(TIMM)].nunique())
