"""timm's networks as candidates: the accuracies of their published weights, and everything known of their cost.

An accuracy here belongs to weights that can be downloaded. Accuracies of other training runs are left out.
"""

from collections.abc import Iterable, Iterator
from functools import cache

from msgspec.structs import replace

from favor.records.schema import Record
from favor.records.timm_results import accuracy_records, named, shipped_architectures, timm_card
from favor.zoo.cards import TIMM


def timm_candidates(own: Iterable[Record], simulated: Iterable[Record]) -> list[Record]:
    """The records of timm's networks, all under timm's names: shipped accuracies, simulated costs, the user's records.

    An accuracy that the user imported from timm's tables takes the place of the shipped one.
    """
    imported: list[Record] = []
    costs: list[Record] = []
    for record in own:
        if record.task != "accuracy":
            costs += _under_timm_names(record)
        elif record.source == "imported" and str(record.conditions.get("pipeline", "")).startswith(TIMM):
            imported += _under_timm_names(record)
    known = {_weights(record) for record in imported}
    shipped = [record for record in shipped_accuracies() if _weights(record) not in known]
    return [*shipped, *imported, *simulated, *costs]


@cache
def shipped_accuracies() -> tuple[Record, ...]:
    """The published accuracies of all checkpoints of timm, as records of timm's networks."""
    return tuple(
        record
        for architecture in shipped_architectures()
        for record in accuracy_records(TIMM + architecture, timm_card(architecture), [architecture])
    )


def _weights(record: Record) -> tuple[object, ...]:
    return record.name, *(record.conditions.get(key) for key in ("img_size", "pipeline", "dataset"))


def _under_timm_names(record: Record) -> Iterator[Record]:
    """A record of one of timm's networks, or of the same network in the zoo, under timm's name; nothing of others."""
    row = record.provenance.get("row") if record.source == "imported" else None
    if row is not None:
        architectures: tuple[str, ...] = (str(row).partition(".")[0],)
    elif record.name.startswith(TIMM):
        architectures = (record.name.removeprefix(TIMM).partition(".")[0],)
    else:
        architectures = _same_networks().get((record.name, record.conditions.get("img_size")), ())
    for architecture in architectures:
        yield replace(record, name=TIMM + architecture, model=timm_card(architecture))


@cache
def _same_networks() -> dict[tuple[str, object], tuple[str, ...]]:
    """A model of the zoo at an image size -> timm's architectures that are the same network, with weights for it."""
    architectures: dict[tuple[str, object], tuple[str, ...]] = {}
    for record in shipped_accuracies():
        architecture = record.name.removeprefix(TIMM)
        key = named(architecture), record.conditions["img_size"]
        if not key[0].startswith(TIMM) and architecture not in architectures.get(key, ()):
            architectures[key] = (*architectures.get(key, ()), architecture)
    return architectures
