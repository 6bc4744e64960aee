"""Mutated files by the hundred thousand: `python benchmarks/hostile.py --cases 100000`.

The harness of `tests/hostile` with more cases. Prints the outcomes of each format, and for each case that ended
badly its number; `--format NAME --first NUMBER --cases 1` repeats it. Exit code 1 if there are any.
"""

import argparse
import sys
from pathlib import Path

# Replaces this folder, in which `hostile` is this file.
sys.path[0] = str(Path(__file__).resolve().parent.parent / "tests")

from hostile.formats import FORMATS  # noqa: E402
from hostile.harness import drill, heading, row  # noqa: E402
from hostile.test_records import RECORDS  # noqa: E402


def main() -> None:
    formats = (*FORMATS, RECORDS)
    names = [known.name for known in formats]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000, help="of each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--format", action="append", choices=names, help="repeatable; all unless given")
    asked = parser.parse_args()
    chosen = [known for known in formats if asked.format is None or known.name in asked.format]
    width = max(len(known.name) for known in chosen)
    print(heading(width), flush=True)
    bad = 0
    for known in chosen:
        done = drill(known, asked.cases, asked.seed, first=asked.first)
        print(row(done, width), flush=True)
        for finding in done.findings:
            print(f"  {finding.case}: {finding.outcome}: {finding.detail}", flush=True)
        bad += done.bad
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
