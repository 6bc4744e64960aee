"""Processor time of `favor report`: 15 s or less, also for 10,000 models with counts, costs and accuracies.

Run: python benchmarks/report_speed.py [STUDY...]
Each page is written by a process of its own; its seconds are user and system time, which other programs on the machine
disturb less than the clock. timm's published results are a study after `favor import timm FILE... --study timm`.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from report.made_up import many_models

SIZES = (200, 1_500, 10_000)
LIMIT = 15.0


def seconds(page: Path, *studies: str) -> float:
    """Processor time of one `favor report`."""
    before = os.times()
    command = [sys.executable, "-m", "favor", "report", *studies, "-o", str(page)]
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> int:
    """Print a line per page; the exit code says whether all keep the limit."""
    print(f"{'page of':<24} {'seconds':>8} {'MB':>6}", flush=True)
    slowest = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made_up = {f"{size:,} models": str(many_models(folder / str(size), size)) for size in SIZES}
        given = {study: study for study in sys.argv[1:] or ["example:cpu"]}
        for title, study in ({"no study": None} | given | made_up).items():
            page = folder / "report.html"
            taken = seconds(page, *([study] if study else []))
            slowest = max(slowest, taken)
            print(f"{title:<24} {taken:>8.1f} {page.stat().st_size / 1e6:>6.1f}", flush=True)
    return 0 if slowest <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
