"""The accuracy of int8 models: that of the float model plus the change that was measured, or unknown."""

import numpy as np
import pandas as pd

from favor.analyze.setting import Setting, column_of
from favor.metrics import QUALITIES

_TRAINING = ("pipeline", "pretraining", "pretraining_pipeline", "epochs", "minutes")


def with_quantized_accuracy(
    rows: pd.DataFrame, assembled: pd.DataFrame, dataset: str | None, basis: Setting | None, run: Setting
) -> pd.DataFrame:
    """The rows of an int8 setting, with the accuracy of the quantized models and no quality of the float ones.

    A change of top-1 counts if it was measured in this run setting, on this dataset, and with weights of the training
    that the accuracy is of: the row's own, or else the `basis`. All changes are in the `assembled` rows: those of
    different training runs are not compared with each other.

    >>> int8 = Setting(device="cpu", precision="int8")
    >>> change = Setting(dataset="digits", pipeline="p", epochs=20, device="cpu", precision="int8")
    >>> rows = pd.DataFrame({"top1": [90.0, 80.0], "top1_change": [-0.5, np.nan]})
    >>> rows["top1_change_setting"] = [change, None]
    >>> long, short = (Setting(dataset="digits", pipeline="p", epochs=epochs) for epochs in (20, 1))
    >>> with_quantized_accuracy(rows, rows, "digits", long, int8)["top1"].tolist()
    [89.5, nan]
    >>> with_quantized_accuracy(rows, rows, "digits", short, int8)["top1"].tolist()
    [nan, nan]
    """
    if "top1" not in rows.columns:
        return rows
    trainings = [own if isinstance(own, Setting) else basis for own in column_of(rows, "top1_setting")]
    of_accuracy = zip(column_of(assembled, "top1_change_setting"), trainings, strict=True)
    fits = np.array([_is_of(setting, dataset, training, run) for setting, training in of_accuracy], dtype=bool)
    change = column_of(assembled, "top1_change").astype(float).where(fits)
    columns = {
        name: rows[name].mask(rows[name].notna()) for name in QUALITIES if name in rows.columns and name != "top1"
    }
    for name in ("top1", "top1_mean", "top1_best"):
        if name in rows.columns:
            columns[name] = rows[name].astype(float) + change
    ends = ("low", "high")
    of_float = {end: column_of(rows, f"top1_{end}").astype(float).fillna(rows["top1"].astype(float)) for end in ends}
    of_change = {end: column_of(assembled, f"top1_change_{end}").astype(float).where(fits) for end in ends}
    quantized = {end: of_float[end] + of_change[end] for end in ends}
    columns |= {f"top1_{end}": quantized[end] for end in ends}
    if "top1_std" in rows.columns:  # it does not describe the change, which has its own interval
        columns["top1_std"] = rows["top1_std"].mask(rows["top1_std"].notna())
    if "top1_shared" in rows.columns:  # test images make a smaller part of the wider interval
        narrower = (of_float["high"] - of_float["low"]) / (quantized["high"] - quantized["low"])
        columns["top1_shared"] = rows["top1_shared"] * narrower**2
    return rows.assign(**columns)


def _is_of(setting: object, dataset: str | None, training: Setting | None, run: Setting) -> bool:
    if not isinstance(setting, Setting) or setting.run != run or setting.dataset != dataset:
        return False
    return training is None or all(getattr(setting, name) == getattr(training, name) for name in _TRAINING)
