"""The accuracy of int8 models: that of the float model plus the change that was measured, or unknown."""

import numpy as np
import pandas as pd

from favor.analyze.setting import Setting, column_of
from favor.metrics import QUALITIES


def with_quantized_accuracy(rows: pd.DataFrame, dataset: str | None, basis: Setting | None) -> pd.DataFrame:
    """The rows of an int8 setting, with the accuracy of the quantized models and no quality of the float ones.

    A change of top-1 counts if it was measured on this data set with weights of the pipeline that is compared.

    >>> change = Setting(dataset="digits", pipeline="p")
    >>> rows = pd.DataFrame({"top1": [90.0, 80.0], "top1_change": [-0.5, np.nan]})
    >>> rows["top1_change_setting"] = [change, None]
    >>> with_quantized_accuracy(rows, "digits", Setting(dataset="digits", pipeline="p"))["top1"].tolist()
    [89.5, nan]
    """
    if "top1" not in rows.columns:
        return rows
    pipeline = basis.pipeline if basis else None
    settings = column_of(rows, "top1_change_setting")
    fits = np.array([_is_of(setting, dataset, pipeline) for setting in settings], dtype=bool)
    change = column_of(rows, "top1_change").astype(float).where(fits)
    columns = {
        name: rows[name].mask(rows[name].notna()) for name in QUALITIES if name in rows.columns and name != "top1"
    }
    columns["top1"] = rows["top1"].astype(float) + change
    for end in ("low", "high"):
        of_float = column_of(rows, f"top1_{end}").astype(float).fillna(rows["top1"].astype(float))
        columns[f"top1_{end}"] = of_float + column_of(rows, f"top1_change_{end}").astype(float).where(fits)
    return rows.assign(**columns)


def _is_of(setting: object, dataset: str | None, pipeline: str | None) -> bool:
    if not isinstance(setting, Setting) or setting.dataset != dataset:
        return False
    return pipeline is None or setting.pipeline == pipeline
