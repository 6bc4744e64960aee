"""Fine-tuning from published weights: the weights and their preprocessing belong to the model, not to the training."""

from dataclasses import replace

import pandas as pd

from favor.analyze.setting import OWN_WEIGHTS, PUBLISHED_WEIGHTS, column_of
from favor.pipeline import Pipeline, changes_text
from favor.zoo.cards import TIMM

PREPROCESSING = "preprocessing"
_OF_WEIGHTS = ("eval_crop_ratio", "interpolation", "mean", "std")


def with_own_weights(table: pd.DataFrame) -> pd.DataFrame:
    """The table with published weights and their preprocessing in columns of their own, not in training conditions.

    So models that were fine-tuned with one recipe, each from its own weights, are compared at their image sizes.

    >>> row = {"pretraining": "timm:resnet18.a1_in1k", "pipeline": "transfer@1 lr=0.1 interpolation=bicubic"}
    >>> with_own_weights(pd.DataFrame([row]))[["pipeline", "pretraining", "published_weights"]].to_numpy().tolist()
    [['transfer@1 lr=0.1', 'own published weights', 'resnet18.a1_in1k']]
    """
    if not {"pretraining", "pipeline"} <= set(table.columns):
        return table
    weights = {text: text.removeprefix(TIMM) for text in table["pretraining"].dropna().unique() if _is_published(text)}
    split = {text: _split(text) for text in table.loc[table["pretraining"].isin(list(weights)), "pipeline"].unique()}
    brings = table["pretraining"].isin(list(weights)) & table["pipeline"].map(split).notna()
    if not brings.any():
        return table
    of_training, of_weights = ({text: both[at] for text, both in split.items() if both} for at in (0, 1))
    return table.assign(
        pipeline=table["pipeline"].where(~brings, table["pipeline"].map(of_training)),
        pretraining=table["pretraining"].mask(brings, OWN_WEIGHTS),
        pretraining_img_size=column_of(table, "pretraining_img_size").mask(brings),
        **{
            PUBLISHED_WEIGHTS: table["pretraining"].map(weights).where(brings),
            PREPROCESSING: table["pipeline"].map(of_weights).where(brings),
        },
    )


def pipeline_names(asked: str | None) -> tuple[str | None, ...]:
    """The names that a pipeline may have in a setting: with and without the preprocessing."""
    split = _split(asked)
    return (asked,) if split is None else (asked, split[0])


def _is_published(pretraining: object) -> bool:
    """Whether initial weights are a published checkpoint that was not trained further."""
    return isinstance(pretraining, str) and pretraining.startswith(TIMM) and "+" not in pretraining


def _split(pipeline: object) -> tuple[str, str] | None:
    """A pipeline without the preprocessing, and the preprocessing; None if favor did not write it."""
    parsed = Pipeline.parsed(pipeline) if isinstance(pipeline, str) else None
    if parsed is None:
        return None
    kept = {key: value for key, value in parsed.changes.items() if key not in _OF_WEIGHTS}
    brought = {key: value for key, value in parsed.changes.items() if key in _OF_WEIGHTS}
    return str(replace(parsed, changes=kept)), changes_text(brought)
