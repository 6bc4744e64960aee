"""Accuracy per parameter.

Paper: Nauen et al., "Which Transformer to Favor", section 5.2 and appendix D.7, Figures 3 and 15.
"""

from dataclasses import dataclass

import pandas as pd

from favor.analyze.selection import complete_rows, numbers
from favor.errors import RequestError


@dataclass(frozen=True)
class ParameterEfficiency:
    """A model's accuracy (%) per parameter, and its ratios to the median of all models."""

    name: str
    top1: float
    per_parameter: float
    of_median: float


@dataclass(frozen=True)
class AccuracyPerParameter:
    """The models ordered by accuracy; `median` is the level of % per parameter that the models share."""

    models: tuple[ParameterEfficiency, ...]
    median: float


def accuracy_per_parameter(table: pd.DataFrame) -> AccuracyPerParameter:
    """Accuracy per parameter of every model that has both, the least accurate first.

    >>> table = pd.DataFrame({"name": ["vit_s16"], "top1": [82.54], "params": [22059496]})
    >>> f"{accuracy_per_parameter(table).models[0].per_parameter:.1e}"
    '3.7e-06'
    """
    usable, _ = complete_rows(table, ["top1", "params"])
    usable = usable.sort_values("top1", kind="stable")
    top1, params = numbers(usable, "top1"), numbers(usable, "params")
    if len(params) and params.min() <= 0:
        impossible = ", ".join(str(name) for name in usable["name"][params <= 0])
        raise RequestError(f"accuracy per parameter needs at least one parameter; {impossible} has none in the records")
    ratios = top1 / params
    median = float(pd.Series(ratios).median())
    models = tuple(
        ParameterEfficiency(str(name), float(accuracy), float(ratio), float(ratio) / median)
        for name, accuracy, ratio in zip(usable["name"], top1, ratios, strict=True)
    )
    return AccuracyPerParameter(models, median)
