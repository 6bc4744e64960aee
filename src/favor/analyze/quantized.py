"""The accuracy of int8 models: that of the float model plus the change that was measured, or unknown."""

import numpy as np
import pandas as pd

from favor.analyze.setting import Setting, column_of
from favor.metrics import QUALITIES


def with_quantized_accuracy(rows: pd.DataFrame, dataset: str | None, basis: Setting | None) -> pd.DataFrame:
    """The rows of an int8 setting, with the accuracy of the quantized models and no quality of the float ones.

    A change of top-1 counts if it was measured on this data set with weights of the pipeline that is compared: the
    `basis`, or that of the model's accuracy where pipelines are mixed.

    >>> change = Setting(dataset="digits", pipeline="p")
    >>> rows = pd.DataFrame({"top1": [90.0, 80.0], "top1_change": [-0.5, np.nan]})
    >>> rows["top1_change_setting"] = [change, None]
    >>> with_quantized_accuracy(rows, "digits", Setting(dataset="digits", pipeline="p"))["top1"].tolist()
    [89.5, nan]
    """
    if "top1" not in rows.columns:
        return rows
    pipelines = list(column_of(rows, "top1_pipeline")) if basis is None else [basis.pipeline] * len(rows)
    settings = column_of(rows, "top1_change_setting")
    of_accuracy = zip(settings, pipelines, strict=True)
    fits = np.array([_is_of(setting, dataset, pipeline) for setting, pipeline in of_accuracy], dtype=bool)
    change = column_of(rows, "top1_change").astype(float).where(fits)
    columns = {
        name: rows[name].mask(rows[name].notna()) for name in QUALITIES if name in rows.columns and name != "top1"
    }
    for name in ("top1", "top1_mean", "top1_best"):
        if name in rows.columns:
            columns[name] = rows[name].astype(float) + change
    ends = ("low", "high")
    of_float = {end: column_of(rows, f"top1_{end}").astype(float).fillna(rows["top1"].astype(float)) for end in ends}
    quantized = {end: of_float[end] + column_of(rows, f"top1_change_{end}").astype(float).where(fits) for end in ends}
    columns |= {f"top1_{end}": quantized[end] for end in ends}
    if "top1_std" in rows.columns:  # it says nothing of the change, which has an interval of its own
        columns["top1_std"] = rows["top1_std"].mask(rows["top1_std"].notna())
    if "top1_shared" in rows.columns:  # test images make a smaller part of the wider interval
        narrower = (of_float["high"] - of_float["low"]) / (quantized["high"] - quantized["low"])
        columns["top1_shared"] = rows["top1_shared"] * narrower**2
    return rows.assign(**columns)


def _is_of(setting: object, dataset: str | None, pipeline: object) -> bool:
    if not isinstance(setting, Setting) or setting.dataset != dataset:
        return False
    return not isinstance(pipeline, str) or setting.pipeline == pipeline
