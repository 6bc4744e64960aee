"""Which of repeated measurements counts: one rule for the table, for contradictions and for what a study has done.

Imports no torch.
"""

from collections.abc import Sequence

from favor.records.schema import Record, Scalar

FOUND_AT_BEST_BATCH = "micro_batch_size"
FOUND_UNDER_LOAD = ("largest_batch", "longest_wait")
"""Conditions that a search finds and nobody asks for: measurements that differ in these alone are repetitions."""


def asked_conditions(record: Record) -> dict[str, Scalar]:
    """The conditions that a measurement was asked for, without those that its searches found.

    A micro-batch is found where the best batch is searched; elsewhere it is how a training run was split.
    """
    found = {*FOUND_UNDER_LOAD, *([FOUND_AT_BEST_BATCH] if record.conditions.get("batch") == "best" else [])}
    return {name: value for name, value in record.conditions.items() if name not in found}


def precedence(task: str, status: str, flags: object) -> int:
    """The precedence of a record among repetitions of one measurement; of equal ones, the last in the file counts.

    A failure does not undo a success, and times of a busy machine do not replace those of a quiet one.

    >>> precedence("inference", "ok", "latency:wide"), precedence("inference", "ok", "busy")
    (2, 1)
    >>> precedence("accuracy", "ok", "busy"), precedence("accuracy", "failed", None)
    (2, 0)
    """
    if status != "ok":
        return 0
    # Other load slows a training run down, but does not change its accuracy.
    is_busy = task != "accuracy" and isinstance(flags, str) and "busy" in flags.split()
    return 1 if is_busy else 2


def precedence_of(record: Record) -> int:
    """The precedence of a record."""
    return precedence(record.task, record.status, record.environment.get("flags"))


def that_counts(records: Sequence[Record]) -> int:
    """The position of the record that counts, of all records of one measurement in the order of their file.

    Not by time: clocks may be set back, and differ between machines.
    """
    return max(range(len(records)), key=lambda at: (precedence_of(records[at]), at))
