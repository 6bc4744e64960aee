"""How long the page takes: 15 s or less for up to 10,000 models with counts, costs and accuracies, on one thread.

Run: python benchmarks/report_speed.py [STUDY...]
Seconds are processor time from the study's folder to the page's text, so that other work on the machine does not count.
"""

import sys
import tempfile
import time
from pathlib import Path

from favor.records import gather
from favor.report.page import page_of

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from report.made_up import many_models

SIZES = (200, 1_500, 10_000)
LIMIT = 15.0


def seconds(*studies: Path) -> tuple[float, float]:
    """Processor time, and the page's size in MB."""
    start = time.process_time()
    page = page_of(gather(studies))
    return time.process_time() - start, len(page.encode()) / 1e6


def main() -> int:
    """Print the times; the exit code says whether all keep the limit."""
    taken = {"no study": seconds()}
    taken |= {study: seconds(Path(study)) for study in sys.argv[1:] or ["example:cpu"]}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            taken[f"{size:,} models"] = seconds(many_models(Path(folder) / str(size), size))
    print(f"{'page of':<20} {'seconds':>8} {'MB':>6}")
    for study, (time_taken, size_in_mb) in taken.items():
        print(f"{study:<20} {time_taken:>8.1f} {size_in_mb:>6.1f}")
    return 0 if all(time_taken <= LIMIT for time_taken, _ in taken.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
