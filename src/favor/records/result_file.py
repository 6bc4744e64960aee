"""CSV files of other people's results, read row by row, so that a malformed row does not affect the others."""

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from favor.errors import RequestError, one_line, shown
from favor.records.schema import Record
from favor.regular_file import read_text

_MOST_BYTES = 2**24  # timm's largest has 0.2 MB
_MOST_SKIPPED = 10_000


@dataclass(frozen=True)
class SkippedRow:
    """A malformed row: where it is and why it was skipped."""

    file: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: row skipped: {self.why}"


@dataclass(frozen=True)
class ImportedFile:
    """The records of one file; `rows` is its number of rows, imported and skipped."""

    file: str
    rows: int
    records: tuple[Record, ...]
    skipped: tuple[SkippedRow, ...]


def import_rows(
    file: Path,
    check_header: Callable[[Sequence[str]], None],
    records_of: Callable[[Mapping[str, str]], Sequence[Record]],
) -> ImportedFile:
    """The records of all rows; `check_header` and `records_of` raise an error for invalid input."""
    # Spreadsheets begin a UTF-8 file with a byte order mark.
    lines = read_text(file, _MOST_BYTES).removeprefix("\ufeff").split("\n")
    try:
        header = _cells(lines[0])
    except csv.Error as error:
        raise RequestError(f"{file}:1: not a header line: {one_line(error)}") from error
    if len(set(header)) < len(header):
        raise RequestError(f"{file}:1: the header names a column twice")
    check_header(header)
    records: list[Record] = []
    skipped: list[SkippedRow] = []
    rows = [(number, line) for number, line in enumerate(lines[1:], 2) if line.strip()]
    for number, line in rows:
        try:
            records += records_of(_row(header, _cells(line)))
        except (ValueError, RequestError, csv.Error) as error:
            skipped.append(SkippedRow(str(file), number, str(error)))
            if len(skipped) > _MOST_SKIPPED:
                first = skipped[0]
                raise RequestError(f"{file}: more than {_MOST_SKIPPED:,} malformed rows, the first: {first}") from error
    return ImportedFile(str(file), len(rows), tuple(records), tuple(skipped))


def positive(row: Mapping[str, str], column: str) -> float:
    """The number above zero in a cell.

    >>> positive({"params": "1,013.5"}, "params")
    1013.5
    """
    text = row[column]
    # A comma groups thousands; "2,5" is no number here.
    is_number = len(text) <= 30 and re.fullmatch(r"(\d+|\d{1,3}(,\d{3})+)(\.\d+)?(e[+-]?\d{1,2})?", text, re.ASCII)
    value = float(text.replace(",", "")) if is_number else 0.0
    if value == 0:
        raise ValueError(f"{column} {shown(text)} is not a number above zero")
    return value


def count(row: Mapping[str, str], column: str) -> int:
    """The integer above zero in a cell."""
    value = positive(row, column)
    if not value.is_integer() or value >= 2**31:
        raise ValueError(f"{column} {shown(row[column])} is not an integer below 2^31")
    return int(value)


def _cells(line: str) -> list[str]:
    # Line by line, because a quote that is never closed would swallow all rows after it.
    return next(csv.reader([line]), [])


def _row(header: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    if len(cells) != len(header):
        raise ValueError(f"{len(cells)} cells where the header has {len(header)}")
    return dict(zip(header, cells, strict=True))
