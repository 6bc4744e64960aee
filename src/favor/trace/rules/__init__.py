"""What each ATen operator costs: one registry, filled by one file per family of operators.

A rule for an operator of your own goes anywhere that is imported before counting, for example into a plugin:

    from favor.trace.rules import Call, Work, rule

    @rule(torch.ops.mylib.scan, kind="reduction")
    def _scan(call: Call) -> Work:
        return Work(other_flops=call.inputs[0].numel())
"""

from favor.trace.rules import fourier, movement, normalization, pointwise, products, reductions  # noqa: F401
from favor.trace.rules.registry import NOTHING, Call, Kind, Rule, Work, find_rule, rule

__all__ = ["NOTHING", "Call", "Kind", "Rule", "Work", "find_rule", "rule"]
