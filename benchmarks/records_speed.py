"""How long a study of 100,000 records takes to load: `python benchmarks/records_speed.py` (about 30 s).

The goal is 2 s or less for the wide table, pandas' import excluded, with five metrics to a record (1 kB a line, 100 MB
in all). A corrupt line costs the time of reading its 4 MB chunk line by line.
"""

import argparse
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from favor.metrics import METRICS
from favor.records.schema import CardFields, Reading, Record
from favor.records.store import FILE_NAME, append, read
from favor.records.table import load

INFERENCE = ("throughput", "latency_p50", "latency_p90", "latency_p99", "inference_memory")


def a_record(number: int) -> Record:
    value = 1 + random.Random(number).random()  # noqa: S311 - numbers to fill a file
    return Record(
        name=f"model_{number % 50}_s16",
        model=CardFields("vit", "ViT", "baseline", "baseline", 2020, "own"),
        task="inference",
        source="measured",
        conditions={
            "img_size": 224,
            "num_classes": 1000,
            "batch_size": number + 1,
            "device": "cpu",
            "precision": "fp32",
            "compile": False,
        },
        environment={"torch": "2.15.0", "device_name": "a processor", "threads": 2, "python": "3.11", "load": value},
        metrics={name: Reading(value, METRICS[name].unit, 1.0, 2.0, "median of blocks") for name in INFERENCE},
        time="2026-11-15T21:40:00Z",
    )


def seconds(job: Callable[[], object], runs: int) -> str:
    """Wall and processor time; on a busy machine only the second is meaningful."""
    wall, processor = [], []
    for _ in range(runs):
        start, start_processor = time.perf_counter(), time.process_time()
        job()
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - start_processor)
    middle = statistics.median(wall)
    return f"median {middle:.2f} s, best {min(wall):.2f} s, processor {min(processor):.2f} s ({runs} runs)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder)
        start = time.perf_counter()
        append(study, map(a_record, range(arguments.records)))
        size = (study / FILE_NAME).stat().st_size / 1e6
        print(f"append {arguments.records} records ({size:.0f} MB): {time.perf_counter() - start:.2f} s")
        table = load(study)
        print(f"table: {len(table)} rows, {len(table.columns)} columns, pandas {pd.__version__}")
        print(f"load into the wide table: {seconds(lambda: load(study), arguments.runs)}")
        print(f"read as records: {seconds(lambda: read(study), 1)}")
        with (study / FILE_NAME).open("r+b") as file:
            file.seek(5_000)
            file.write(b"\x00\x00")
        warnings.simplefilter("ignore")
        print(f"load with one corrupt line: {seconds(lambda: load(study), arguments.runs)}")


if __name__ == "__main__":
    main()
