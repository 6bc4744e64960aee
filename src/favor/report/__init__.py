"""Reports: one interactive page, and the papers' figures from the user's data.

Imports happen inside the functions, because pandas takes half a second.
"""

from collections.abc import Sequence
from pathlib import Path

__all__ = ["write_report"]


def write_report(sources: Sequence[Path], output: Path) -> None:
    """Write the page of study folders or record files; without any, that of the published and counted records alone."""
    from favor.records import gather
    from favor.records.export import write_whole
    from favor.report.page import page_of

    write_whole(output, page_of(gather(sources)).encode())
