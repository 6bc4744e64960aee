"""The zoo's cards as data, so that names and cards are known without importing torch.

`index.json` holds the cards and a digest of the zoo's source. If a file of the zoo has changed since, the index is not
used and the zoo is imported instead: right, but slow. `make cards` writes the index anew.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from favor.zoo.cards import Card, ImageSizes
from favor.zoo.taxonomy import How

ZOO = Path(__file__).parent
INDEX = ZOO / "index.json"


def source_digest(zoo: Path = ZOO) -> str:
    """A digest of all source files of the zoo: names and content, whatever the line endings."""
    digest = hashlib.sha256()
    for file in sorted(zoo.rglob("*.py")):
        content = file.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{file.relative_to(zoo).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def read_index(index: Path = INDEX) -> dict[str, Card] | None:
    """The cards by name, in the order of registration; None if the index is not that of the present source."""
    try:
        data = json.loads(index.read_bytes())
    except (OSError, ValueError):  # missing, or with the marks of a merge conflict
        return None
    if data["source"] != source_digest():
        return None
    return {card.name: card for card in map(_card, data["cards"])}


def write_index(cards: Iterable[Card], index: Path = INDEX) -> None:
    """Write the cards with the digest of the present source."""
    lines = ",\n".join(json.dumps(_data(card), ensure_ascii=False) for card in cards)  # a card a line, for merges
    index.write_text(f'{{"source": "{source_digest()}",\n"cards": [\n{lines}\n]}}\n', encoding="utf-8")


def _data(card: Card) -> dict[str, object]:
    """What JSON can hold of a card; the strategy tells the place."""
    data = {name: value for name, value in asdict(card).items() if name != "where"}
    return {**data, "how": card.how.key if card.how else None}


def _card(data: dict[str, Any]) -> Card:
    how = {how.key: how for how in How}.get(data["how"])
    sizes = {**data["image_sizes"], "only": tuple(data["image_sizes"]["only"])}
    lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
    places = {"where": how.where if how else None, "how": how, "image_sizes": ImageSizes(**sizes)}
    return Card(**{**data, **lists, **places})
