"""Make src/favor/records/counts.csv: the counts of every model of the zoo, at its own image size.

python benchmarks/make_counts.py        a few minutes; after a model or a counting rule has changed
"""

import csv
import io
import json
import logging
import sys
import warnings
from pathlib import Path

from favor.atomic_file import write_whole
from favor.records.counted import CARD_COLUMNS, COUNTED, OPERATING_POINT
from favor.trace.counts import count
from favor.zoo.registry import card, list_models

FILE = Path(__file__).parents[1] / "src" / "favor" / "records" / "counts.csv"


def row_of(name: str) -> dict[str, object]:
    """One line of the file: the model's card, its image size and operating point, its counts for a single image."""
    fields = card(name).as_dict()
    size = card(name).image_sizes.default
    counts = count(name, img_size=size, num_classes=1000, batch_size=1)
    about = {column: fields[column] for column in ("name", *CARD_COLUMNS)}
    point = json.dumps(dict(counts.operating_point)) if counts.operating_point else ""
    return about | {"img_size": size, OPERATING_POINT: point} | {metric: getattr(counts, metric) for metric in COUNTED}


def main() -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    text = io.StringIO()
    writer = csv.DictWriter(text, ("name", *CARD_COLUMNS, "img_size", OPERATING_POINT, *COUNTED), lineterminator="\n")
    writer.writeheader()
    names = sorted(list_models())
    for number, name in enumerate(names, 1):
        print(f"{number}/{len(names)} {name}", file=sys.stderr, flush=True)
        writer.writerow(row_of(name))
    write_whole(FILE, text.getvalue().encode())


if __name__ == "__main__":
    main()
