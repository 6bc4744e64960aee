"""Make the README's table of the zoo and its picture from the cards, the counts and the study that comes with favor.

python benchmarks/make_readme.py               both: a quarter of a minute; the picture wants chromium
python benchmarks/make_readme.py --table       the table alone
"""

import argparse
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from favor.atomic_file import write_whole
from favor.errors import WorkError
from favor.records import counted_records, gather, read
from favor.records.example import PREFIX
from favor.records.schema import Record
from favor.report.page import page_of
from favor.units import format_quantity
from favor.zoo.registry import card
from favor.zoo.taxonomy import How
from make_cpu_study import NAME, Study, cell, markdown, study_of

ROOT = Path(__file__).parents[1]
README, PICTURE = ROOT / "README.md", ROOT / "docs" / "page.png"
BEGIN, END = "<!-- zoo: made by benchmarks/make_readme.py -->\n", "<!-- /zoo -->\n"
EXAMPLE = Path(f"{PREFIX}{NAME}")
COLUMNS = ("parameters", "multiply-adds", "top-1", "throughput", "memory")
COMPOSED = ("vix", "misnomer")
"""Families that are grids of the others' parts; the README tells of them in a line each."""
VIEW = "x=throughput&y=top1"
WIDTH, HEIGHT = 1280, 920


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="leave the picture as it is")
    only_table = parser.parse_args().table
    write_whole(README, with_table(README.read_text(encoding="utf-8"), zoo_table()).encode())
    if not only_table:
        write_whole(PICTURE, picture())
    made = [README] if only_table else [README, PICTURE]
    print(f"made {', '.join(str(path.relative_to(ROOT)) for path in made)}", file=sys.stderr)


def with_table(text: str, table: str) -> str:
    """The README with the table between its two marks."""
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise WorkError(f"README.md has no place for the table of the zoo; it wants the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{table}\n\n{END}{after}"


def zoo_table() -> str:
    """One line an architecture: its class, its models, and what one of them costs, on paper and on the study's CPU."""
    study = study_of(read(EXAMPLE).records)
    counts = {record.name: record for record in counted_records()}
    families: dict[str, list[str]] = defaultdict(list)
    for name in sorted(counts):
        families[str(counts[name].model.family)].append(name)
    order = [how.key for how in How]
    shown = {family: representative(names, study) for family, names in families.items() if family not in COMPOSED}
    ranked = sorted(shown, key=lambda family: (order.index(str(counts[shown[family]].model.how)), family))
    rows = [_row(families[family], counts[shown[family]], study) for family in ranked]
    return markdown(["class", "architecture", "variants", "example", *COLUMNS], rows)


def representative(names: Sequence[str], study: Study) -> str:
    """The model that stands for its family: the first of it in the study, or of the size S, or the first."""
    measured = [name for name in names if study.row(name) is not None]
    small = [name for name in names if name.endswith("_s16")]
    return (measured or small or list(names))[0]


def _row(names: Sequence[str], record: Record, study: Study) -> list[str]:
    known, row = card(record.name), study.row(record.name)
    on_paper = [format_quantity(record.metrics[metric].value, "1") for metric in ("params", "macs")]
    if row is None:
        measured = ["", "", ""]
    else:
        flag = " *" if record.name in study.flagged else ""
        measured = [cell(row, "top1") + flag, cell(row, "throughput"), cell(row, "inference_memory")]
    paper = f"[{known.title}](https://arxiv.org/abs/{known.paper})" if _is_arxiv(known.paper) else known.title
    how = known.how.title if known.how else ""
    return [how, f"{paper} ({known.year})", str(len(names)), f"`{record.name}`", *on_paper, *measured]


def _is_arxiv(paper: str | None) -> bool:
    return paper is not None and paper.replace(".", "").isdigit()


def picture() -> bytes:
    """The page's first screen, with the study, in chromium."""
    from playwright.sync_api import sync_playwright

    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise WorkError("no chromium to take the picture with; install it, or make the table alone with --table")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        file = Path(folder, "report.html")
        file.write_text(page_of(gather([EXAMPLE])), encoding="utf-8")
        window = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        tab = window.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        tab.goto(f"{file.as_uri()}#{VIEW}")
        tab.wait_for_selector("#plot .points")
        taken = tab.screenshot(type="png")
        window.close()
    return taken


if __name__ == "__main__":
    main()
