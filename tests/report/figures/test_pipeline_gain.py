"""Table 1: what one pipeline changes of the accuracies that the models' own papers print."""

import pandas as pd
import pytest

from favor.records import CardFields, Record, reading
from favor.records.table import table_of
from favor.report.figures.pipeline_gain import pipeline_gain, pipeline_gain_figure

CARD = CardFields("vit", "ViT", "baseline", "baseline", 2020, "own")


def trained(name: str, top1: float, pipeline: str = "mine@1", **conditions: object) -> Record:
    return Record(
        name=name,
        model=CARD,
        task="accuracy",
        source="measured",
        conditions={"dataset": "imagenet-1k", "pipeline": pipeline, "img_size": 224, "final": True, **conditions},
        metrics={"top1": reading("top1", top1, method="made up")},
    )


def test_the_papers_own_rows_give_its_mean_gain(published: pd.DataFrame) -> None:
    info = pipeline_gain(published)
    assert info is not None
    gains = {pair.alike: pair.difference for pair in info.effect.pairs}
    assert len(gains) == 26
    assert gains["ViT-S (DeiT)"] == pytest.approx(82.54 - 79.8)
    assert gains["EfficientFormer-V2-S0 (distilled)"] == pytest.approx(71.53 - 75.7)
    assert "CvT-13 (384 px)" in gains
    # Five models have other accuracies in Table 5, which is what is compared, than in Table 1.
    assert info.effect.mean == pytest.approx(0.81, abs=0.03)


def test_own_accuracies_replace_the_benchmarks(published: pd.DataFrame) -> None:
    own = table_of([trained("vit_s16", 80.0), trained("swin_s", 82.0), trained("vit_ti16", 70.0)])
    info = pipeline_gain(pd.concat([published, own], ignore_index=True))
    assert info is not None
    found = {pair.alike: round(pair.difference, 2) for pair in info.effect.pairs}
    assert found == {"ViT-S (DeiT)": 0.2, "ViT-S (DeiT III)": -2.6, "Swin-S": -1.0}
    assert info.sources == "Sources: top-1 accuracy measured (imagenet-1k, pipeline mine@1) for 2 models."


@pytest.mark.parametrize("records", [[], [trained("vit_s16", 80.0)], [trained("vit_ti16", 70.0)] * 2])
def test_with_fewer_than_two_models_of_table_1_it_says_what_to_run(records: list[Record]) -> None:
    figure = pipeline_gain_figure(table_of(records))
    assert figure.chart is None
    assert "favor run paper" in str(figure.missing)
