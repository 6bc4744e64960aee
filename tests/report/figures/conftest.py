"""Figures of what comes with favor, and of a made-up study, drawn once for all tests."""

from typing import Any

import pandas as pd
import pytest

from favor.report.figures import Figure, all_figures
from report.figures.made_up import published_only, with_study


@pytest.fixture(scope="session")
def published() -> pd.DataFrame:
    return published_only()


@pytest.fixture(scope="session")
def study() -> pd.DataFrame:
    return with_study()


@pytest.fixture(scope="session")
def published_figures(published: pd.DataFrame) -> dict[str, Figure]:
    return {figure.id: figure for figure in all_figures(published)}


@pytest.fixture(scope="session")
def study_figures(study: pd.DataFrame) -> dict[str, Figure]:
    return {figure.id: figure for figure in all_figures(study)}


@pytest.fixture(scope="session")
def study_specs(study_figures: dict[str, Figure]) -> dict[str, dict[str, Any]]:
    charts = {name: figure.chart for name, figure in study_figures.items()}
    return {name: chart.to_dict() for name, chart in charts.items() if chart is not None}
