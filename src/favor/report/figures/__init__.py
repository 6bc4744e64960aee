"""The papers' figures, each from the reader's own data: an info object that analysis fills, and a thin renderer."""

from collections.abc import Callable
from functools import partial

import pandas as pd

from favor.analyze.comparison import DEFAULT_SCOPE, Scope, results
from favor.analyze.setting import column_of
from favor.report.figures.classes import classes_figure
from favor.report.figures.correlations import cost_correlation_figure, dataset_correlation_figure
from favor.report.figures.datasets import datasets_figure
from favor.report.figures.evidence import evidence_of
from favor.report.figures.export import export
from favor.report.figures.figure import Figure
from favor.report.figures.flips import common_costs, disagreement_figure, flips_of, strongest_flips_figure
from favor.report.figures.fronts import FRONT_FIGURES, front_figure
from favor.report.figures.guide import guide_figure
from favor.report.figures.hardware import device_correlation_figure, device_fronts_figure, device_relation_figure
from favor.report.figures.indicator_scatter import indicator_scatter_figure
from favor.report.figures.learning_curves import schedules_figure, weight_decays_figure
from favor.report.figures.misnomer import depth_or_width_figure, indicators_figure, patch_sizes_figure
from favor.report.figures.parameters import accuracy_per_parameter_figure
from favor.report.figures.pareto_table import pareto_table_figure
from favor.report.figures.pipeline_gain import pipeline_gain_figure
from favor.report.figures.pretraining import pretraining_figure
from favor.report.figures.quality_over_costs import families_figure, quality_figure
from favor.report.figures.relations import memory_from_operations, training_memory_relation, training_time_relation
from favor.report.figures.scaling import scaling_figure
from favor.report.figures.taxonomy import taxonomy_figure
from favor.report.figures.theme import theme
from favor.report.figures.variability import variability_figure
from favor.report.figures.x_formers import x_formers_figure
from favor.report.figures.years import years_figure
from favor.report.progress import Track, unseen

__all__ = ["Figure", "all_figures", "export", "theme"]

Maker = Callable[[], Figure]

_OTHER_PAPERS = ("misnomer", "vix")  # the pipelines of the other two papers' published tables


def all_figures(table: pd.DataFrame, scope: Scope = DEFAULT_SCOPE, track: Track = unseen) -> list[Figure]:
    """Every figure of the three papers, from a table of all records: published, counted, and the reader's own."""
    finished = results(table, scope.unfinished)
    makers: list[Maker] = [
        *_benchmark(_without_other_papers(finished), scope),
        *_misnomer(finished, table, scope),
        partial(x_formers_figure, finished, scope),
    ]
    return [make() for make in track(makers, "figures")]


def _benchmark(table: pd.DataFrame, scope: Scope) -> list[Maker]:
    evidence, speeds = evidence_of(table, scope=scope), evidence_of(table, ("throughput", "top1"), scope=scope)
    throughput, training_time, training_memory, inference_memory, parameters = (
        partial(front_figure, evidence, figure) for figure in FRONT_FIGURES
    )
    return [
        throughput,
        partial(taxonomy_figure, table),
        partial(accuracy_per_parameter_figure, evidence),
        training_time,
        training_memory,
        inference_memory,
        partial(guide_figure, evidence),
        partial(variability_figure, table),
        partial(datasets_figure, table, scope),
        partial(classes_figure, evidence),
        partial(device_relation_figure, speeds),
        partial(device_fronts_figure, speeds),
        partial(scaling_figure, evidence),
        partial(years_figure, evidence),
        partial(pretraining_figure, table, scope),
        parameters,
        partial(training_time_relation, evidence),
        partial(training_memory_relation, evidence),
        partial(memory_from_operations, evidence),
        partial(pipeline_gain_figure, table, scope),
        partial(cost_correlation_figure, evidence),
        partial(dataset_correlation_figure, table, scope),
        partial(device_correlation_figure, speeds),
        partial(pareto_table_figure, evidence),
    ]


def _misnomer(table: pd.DataFrame, every_epoch: pd.DataFrame, scope: Scope) -> list[Maker]:
    evidence = evidence_of(table, scope=scope)
    costs = common_costs(evidence)
    flips = flips_of(costs)
    return [
        partial(indicators_figure, evidence),
        partial(quality_figure, table, scope),
        partial(schedules_figure, every_epoch),
        partial(weight_decays_figure, every_epoch),
        partial(depth_or_width_figure, table, scope),
        partial(disagreement_figure, flips),
        partial(strongest_flips_figure, flips),
        partial(families_figure, table, scope),
        partial(indicator_scatter_figure, costs),
        partial(patch_sizes_figure, evidence),
    ]


def _without_other_papers(table: pd.DataFrame) -> pd.DataFrame:
    """What the other two papers published is of other networks, data and devices, and has figures of its own."""
    foreign = (column_of(table, "source") == "published") & column_of(table, "pipeline").isin(_OTHER_PAPERS)
    return table[~foreign]
