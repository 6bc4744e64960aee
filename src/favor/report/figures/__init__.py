"""The papers' figures, each from the reader's own data: an info object that analysis fills, and a thin renderer."""

import pandas as pd

from favor.analyze.settings import column_of
from favor.report.figures.classes import classes_figure
from favor.report.figures.correlations import cost_correlation_figure, dataset_correlation_figure
from favor.report.figures.datasets import datasets_figure
from favor.report.figures.evidence import evidence_of
from favor.report.figures.export import export
from favor.report.figures.figure import Figure
from favor.report.figures.fronts import FRONT_FIGURES, front_figure
from favor.report.figures.guide import guide_figure
from favor.report.figures.hardware import device_correlation_figure, device_fronts_figure, device_relation_figure
from favor.report.figures.misnomer import depth_or_width_figure, flips_figures, indicators_figure, patch_sizes_figure
from favor.report.figures.parameters import accuracy_per_parameter_figure
from favor.report.figures.pareto_table import pareto_table_figure
from favor.report.figures.pretraining import pretraining_figure
from favor.report.figures.relations import memory_from_operations, training_memory_relation, training_time_relation
from favor.report.figures.scaling import scaling_figure
from favor.report.figures.style import theme
from favor.report.figures.taxonomy import taxonomy_figure
from favor.report.figures.variability import variability_figure
from favor.report.figures.x_formers import x_formers_figure
from favor.report.figures.years import years_figure

__all__ = ["Figure", "all_figures", "export", "theme"]

_OTHER_PAPERS = ("misnomer", "vix")  # the pipelines of the other two papers' published tables


def all_figures(table: pd.DataFrame) -> list[Figure]:
    """Every figure of the three papers, from a table of all records: published, counted, and the reader's own."""
    return [*_benchmark(_without_other_papers(table)), *_misnomer(table), x_formers_figure(table)]


def _benchmark(table: pd.DataFrame) -> list[Figure]:
    evidence, speeds = evidence_of(table), evidence_of(table, ("throughput", "top1"))
    throughput, training_time, training_memory, inference_memory, parameters = (
        front_figure(evidence, figure) for figure in FRONT_FIGURES
    )
    return [
        throughput,
        taxonomy_figure(table),
        accuracy_per_parameter_figure(evidence),
        training_time,
        training_memory,
        inference_memory,
        guide_figure(evidence),
        variability_figure(table),
        datasets_figure(table),
        classes_figure(evidence),
        device_relation_figure(speeds),
        device_fronts_figure(speeds),
        scaling_figure(evidence),
        years_figure(evidence),
        pretraining_figure(table),
        parameters,
        training_time_relation(evidence),
        training_memory_relation(evidence),
        memory_from_operations(evidence),
        cost_correlation_figure(evidence),
        dataset_correlation_figure(table),
        device_correlation_figure(speeds),
        pareto_table_figure(evidence),
    ]


def _misnomer(table: pd.DataFrame) -> list[Figure]:
    evidence = evidence_of(table)
    return [
        indicators_figure(evidence),
        depth_or_width_figure(table),
        *flips_figures(evidence),
        patch_sizes_figure(evidence),
    ]


def _without_other_papers(table: pd.DataFrame) -> pd.DataFrame:
    """What the other two papers published is of other networks, data and devices, and has figures of its own."""
    foreign = (column_of(table, "source") == "published") & column_of(table, "pipeline").isin(_OTHER_PAPERS)
    return table[~foreign]
