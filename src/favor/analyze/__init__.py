"""Analysis: every analysis is a function from a pandas table to a small frozen result.

The tables are those of `favor.load_records` and `favor.records.published_table`: one row per model and conditions.
`Comparison` turns them into one row per model, which most analyses need.
scipy is imported inside the functions that need it, because it takes longer to load than a recommendation.
"""

from favor.analyze.accuracy_per_parameter import accuracy_per_parameter
from favor.analyze.compare import compare
from favor.analyze.comparison import Comparison
from favor.analyze.correlation import correlate, correlate_datasets, correlate_devices
from favor.analyze.disagreement import disagreement
from favor.analyze.evolution import evolution
from favor.analyze.front import front_of
from favor.analyze.guide import GuideEntry, guide, guide_entries
from favor.analyze.limits import Limit
from favor.analyze.matched import matched_every_way
from favor.analyze.memory_from_flops import memory_from_flops
from favor.analyze.pareto import pareto
from favor.analyze.ranking import Request
from favor.analyze.recommend import recommend
from favor.analyze.scaling import depth_or_width, model_or_image
from favor.analyze.trainings import Scope

__all__ = [
    "Comparison",
    "GuideEntry",
    "Limit",
    "Request",
    "Scope",
    "accuracy_per_parameter",
    "compare",
    "correlate",
    "correlate_datasets",
    "correlate_devices",
    "depth_or_width",
    "disagreement",
    "evolution",
    "front_of",
    "guide",
    "guide_entries",
    "matched_every_way",
    "memory_from_flops",
    "model_or_image",
    "pareto",
    "recommend",
]
