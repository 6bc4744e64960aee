"""Reports: one interactive page, and the papers' figures from the user's data.

Imports happen inside the functions, because pandas takes half a second.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from favor.report.study_answer import StudyAnswer

__all__ = ["write_report"]


def write_report(sources: Sequence[Path], output: Path, answer: "StudyAnswer | None" = None) -> None:
    """Write the page of study folders or record files; without any, that of the published and counted records alone.

    It opens its recommendation with the study's own answer, where there is one.
    """
    from favor.atomic_file import write_whole
    from favor.records import gather
    from favor.report.page import page_of

    write_whole(output, page_of(gather(sources), answer=answer).encode())
