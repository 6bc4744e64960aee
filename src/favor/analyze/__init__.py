"""Analysis: every analysis is a function from a pandas table to a small frozen result.

The tables are those of `favor.load_records` and `favor.records.published_table`: one row per model and conditions.
`Comparison` turns them into one row per model, which most analyses need.
scipy is imported inside the functions that need it, because it takes longer to load than a recommendation.
"""

from favor.analyze.accuracy_per_parameter import accuracy_per_parameter
from favor.analyze.budget import late_flips
from favor.analyze.compare import compare
from favor.analyze.comparison import Compared, Comparison, Scope, accuracy_basis, assemble, comparable
from favor.analyze.correlation import correlate, correlate_datasets, correlate_devices
from favor.analyze.disagreement import disagreement
from favor.analyze.effects import (
    convolutional_embedding_pairs,
    effect_of_condition,
    effect_of_model,
    linear_attention_pairs,
    paired_effect,
    rotary_position_pairs,
)
from favor.analyze.evolution import evolution
from favor.analyze.guide import GuideEntry, guide, guide_entries
from favor.analyze.limits import Limit
from favor.analyze.matched import matched, matched_every_way
from favor.analyze.memory_from_flops import memory_from_flops
from favor.analyze.pareto import pareto
from favor.analyze.ranking import PREFERENCES, Request
from favor.analyze.recommend import recommend
from favor.analyze.scaling import depth_or_width, growth_with_tokens, model_or_image
from favor.analyze.setting import Setting

__all__ = [
    "PREFERENCES",
    "Compared",
    "Comparison",
    "GuideEntry",
    "Limit",
    "Request",
    "Scope",
    "Setting",
    "accuracy_basis",
    "accuracy_per_parameter",
    "assemble",
    "comparable",
    "compare",
    "convolutional_embedding_pairs",
    "correlate",
    "correlate_datasets",
    "correlate_devices",
    "depth_or_width",
    "disagreement",
    "effect_of_condition",
    "effect_of_model",
    "evolution",
    "growth_with_tokens",
    "guide",
    "guide_entries",
    "late_flips",
    "linear_attention_pairs",
    "matched",
    "matched_every_way",
    "memory_from_flops",
    "model_or_image",
    "paired_effect",
    "pareto",
    "recommend",
    "rotary_position_pairs",
]
