"""Small wide tables to decide on."""

from collections.abc import Callable

import pandas as pd
import pytest

WideTable = Callable[..., pd.DataFrame]


@pytest.fixture
def wide_table() -> WideTable:
    """Builds a wide table from rows; what a row does not say is as in the benchmark's own records."""

    def build(*rows: dict[str, object]) -> pd.DataFrame:
        usual = {"status": "ok", "source": "published", "img_size": 224, "provenance": None, "how": "baseline"}
        accuracy = {
            "dataset": "imagenet-1k",
            "pipeline": "wtf-deit3",
            "pretraining": "imagenet-21k",
            "distillation": False,
        }
        filled = []
        for row in rows:
            name = str(row["name"])
            card = {"family": name.split("_")[0], "title": name}
            filled.append(card | usual | (accuracy if "top1" in row else {}) | row)
        return pd.DataFrame(filled)

    return build
