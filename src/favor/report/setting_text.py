"""The conditions and the machine of a measurement, in words."""

from collections.abc import Collection

from favor.records.frame import machine_text
from favor.records.schema import MACHINE_COLUMNS, Record

_CONDITIONS = {
    "device": "{}",
    "precision": "{}",
    "runtime": "{}",
    "img_size": "{} px",
    "num_classes": "{} classes",
    "batch_size": "batches of {}",
    "attention": "{} attention",
}


def setting_text(record: Record, without: Collection[str] = ()) -> str:
    """What the numbers of two models must share to be compared; `without` are conditions that may differ."""
    conditions = [
        text.format(record.conditions[name])
        for name, text in _CONDITIONS.items()
        if name in record.conditions and name not in without
    ]
    machine = machine_text(*(record.environment.get(key) for key in MACHINE_COLUMNS.values()))
    return ", ".join([*conditions, *([machine] if machine else [])])
