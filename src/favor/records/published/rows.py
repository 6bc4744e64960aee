"""Rows of the CSV files in this folder."""

import csv
from importlib.resources import files


def rows(file: str) -> list[dict[str, str]]:
    """The rows of one of this folder's CSV files; every cell is text, an empty one is not printed in the paper."""
    text = (files("favor.records.published") / file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
