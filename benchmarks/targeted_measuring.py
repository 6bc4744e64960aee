"""Targeted measuring against measuring everything: ten questions, the answers and what they cost.

python benchmarks/targeted_measuring.py TIMM_RESULTS            recorded times as truth, with noise; about 2 minutes
python benchmarks/targeted_measuring.py --real --study DIR      questions on the zoo, really measured on this machine

TIMM_RESULTS is a folder with timm's benchmark-infer-fp32-nchw-pt240-cpu-i9_10940x-dynamo.csv: single images on a CPU.
The other truth is the study example:cpu. A recorded measurement is the truth times noise: 2 % within a measurement of
20 s, more in shorter ones, and 1.5 % between processes. Measuring everything gives every model 20 s and takes the best
by the numbers. The cost is the time of jobs as `favor measure` forecasts it.
"""

import argparse
import json
import math
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from favor.analyze.ranking import Request
from favor.analyze.targeting import BETWEEN_PROCESSES, Candidate
from favor.evidence import load_evidence
from favor.metrics import METRICS
from favor.records.schema import CardFields, Record, reading
from favor.records.store import read
from favor.records.timm_candidates import timm_candidates
from favor.records.timm_results import import_timm
from favor.study.estimate import SHAPES, START_SECONDS
from favor.study.targeted import Answered, measure_for, objective_of, question, targets

BUDGET = 20.0
NOISE = 0.02
TIED = 0.04
CPU_TABLE = "benchmark-infer-fp32-nchw-pt240-cpu-i9_10940x-dynamo.csv"
QUESTIONS = (
    ("timm", "min-accuracy=80 prefer=latency"),
    ("timm", "min-accuracy=84 prefer=latency"),
    ("timm", "min-accuracy=86.5 prefer=latency"),
    ("timm", "max-latency=30ms"),
    ("timm", "max-latency=150ms"),
    ("timm", "max-latency=60ms max-params=30M"),
    (None, "min-accuracy=80 prefer=latency"),
    (None, "min-accuracy=78 prefer=throughput"),
    (None, "max-latency=60ms"),
    (None, "min-accuracy=79 prefer=memory max-latency=150ms"),
)

Truth = Mapping[tuple[str, int], Mapping[str, float]]


@dataclass(frozen=True)
class Recorded:
    """A machine that repeats recorded times with noise, and adds up what measuring costs."""

    truth: Truth
    rng: np.random.Generator
    seconds: list[float]

    def __call__(self, name: str, img_size: int, budget: float) -> Record:
        own = self.truth[name, img_size]
        self.seconds.append(job_seconds(own, budget))
        within = NOISE * math.sqrt(BUDGET / budget)
        metrics = {}
        for metric, value in own.items():
            timed = metric not in ("inference_memory",)
            noise = self.rng.normal(0, math.hypot(within, BETWEEN_PROCESSES)) if timed else 0.0
            seen = value * math.exp(noise)
            ends = (seen * math.exp(-1.96 * within), seen * math.exp(1.96 * within)) if timed else (None, None)
            metrics[metric] = reading(metric, seen, *ends, method="recorded, with noise")
        return Record(name, CardFields(), "inference", "measured", {"img_size": img_size}, metrics)


def job_seconds(own: Mapping[str, float], budget: float) -> float:
    """The seconds of a job as `favor measure` forecasts them."""
    shape = SHAPES["inference"]
    return START_SECONDS + shape.budgets * budget + shape.images * own["latency_p50"]


def cpu_study() -> Truth:
    """The times of example:cpu."""
    wanted = ("latency_p50", "throughput", "inference_memory")
    return {
        (record.name, int(record.conditions["img_size"])): {name: record.metrics[name].value for name in wanted}
        for record in read("example:cpu").records
        if record.task == "inference" and all(name in record.metrics for name in wanted)
    }


def cpu_table(folder: Path) -> Truth:
    """timm's published times of single images on a CPU."""
    records = timm_candidates(import_timm(folder / CPU_TABLE).records, ())
    return {
        (record.name, int(record.conditions["img_size"])): {
            "latency_p50": 1 / record.metrics["throughput"].value,
            "throughput": record.metrics["throughput"].value,
        }
        for record in records
        if record.task == "inference" and record.conditions.get("batch_size") == 1
    }


def best_of_all(found: list[Candidate], request: Request, measure: Recorded) -> Candidate | None:
    """The best by the numbers after measuring every candidate for the whole budget."""
    best: tuple[float, Candidate] | None = None
    for one in found:
        record = measure(one.name, one.img_size, BUDGET)
        numbers = dict(one.known) | {name: found.value for name, found in record.metrics.items()}
        if all(limit.kept_by(np.array([numbers[limit.metric]]))[0] for limit in request.limits):
            cost = METRICS[objective_of(request)].sign * numbers[objective_of(request)]
            if best is None or cost < best[0]:
                best = cost, one
    return None if best is None else best[1]


def agreement(full: Candidate | None, answered: Answered, request: Request, truth: Truth) -> str:
    """Whether both ways favor the same model, or two that noise does not tell apart."""
    quick = answered.favored
    if full is None or quick is None:
        return "same" if full is quick else "other"
    if (full.name, full.img_size) == (quick.name, quick.img_size):
        return "same"
    numbers = [dict(one.known) | dict(truth[one.name, one.img_size]) for one in (full, quick)]
    costs = [objective_of(request), *(limit.metric for limit in request.limits)]
    limited = {limit.metric: limit.value for limit in request.limits}
    for cost in [cost for cost in costs if METRICS[cost].depends_on_device]:
        one, other = (math.log(each[cost]) for each in numbers)
        bound = math.log(limited.get(cost, math.inf))
        if abs(one - other) < TIED or min(abs(one - bound), abs(other - bound)) < TIED:
            return "tied"
    return "other"


def with_truth(found: list[Candidate], truth: Truth) -> list[Candidate]:
    """The candidates with a recorded time, and a simulation as prior."""
    return [one for one in found if (one.name, one.img_size) in truth and one.deviation == 0.0]


def recorded(folder: Path, seeds: int) -> None:
    truths = {"timm": cpu_table(folder), None: cpu_study()}
    tables = {among: load_evidence(timm=among is not None)[0] for among in truths}
    print("| among | question | candidates | measured | cost | cost of all | ratio | same | tied | other |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    ratios = []
    for among, text in QUESTIONS:
        request, truth = question(text, among), truths[among]
        everyone = with_truth(targets(tables[among], question("prefer=latency", among), "cpu"), truth)
        found = with_truth(targets(tables[among], request, "cpu"), truth)
        verdicts, costs, counts = [], [], []
        whole = sum(job_seconds(truth[one.name, one.img_size], BUDGET) for one in everyone)
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            quick = Recorded(truth, rng, [])
            answered = measure_for(found, request, {}, quick, BUDGET)
            full = best_of_all(found, request, Recorded(truth, rng, []))
            verdicts.append(agreement(full, answered, request, truth))
            costs.append(sum(quick.seconds))
            counts.append(len(answered.measured))
        ratio = float(np.mean(costs)) / whole
        ratios.append(ratio)
        tally = " | ".join(str(verdicts.count(word)) for word in ("same", "tied", "other"))
        print(
            f"| {among or 'zoo'} | {text} | {len(found)} of {len(everyone)} | {np.mean(counts):.1f} "
            f"| {np.mean(costs) / 60:.1f} min | {whole / 60:.0f} min | {ratio:.1%} | {tally} |",
            flush=True,
        )
    print(f"median ratio {np.median(ratios):.1%}, highest {max(ratios):.1%}")


def favor(*words: str) -> dict[str, Any]:
    """What a command of favor prints as JSON."""
    done = subprocess.run([sys.executable, "-m", "favor", *words, "--json"], stdout=subprocess.PIPE, check=False)
    return json.loads(done.stdout)


def real(folder: Path) -> None:
    """The questions on the zoo, measured on this machine: once targeted, each in a study of its own, and once all."""
    names = [name for name, img_size in cpu_study() if img_size == 224]
    favor("measure", *names, "--study", str(folder / "all"))
    whole = seconds_of_all(folder / "all")
    print("| question | measured | cost | cost of all | ratio | targeted | all |")
    print("|---|--:|--:|--:|--:|---|---|")
    for number, (among, text) in enumerate(QUESTIONS):
        if among is not None:
            continue
        began = time.monotonic()
        quick = favor("measure", "--for", text, "--study", str(folder / f"question-{number}"))
        cost = time.monotonic() - began
        full = favor(
            "recommend",
            "--study",
            str(folder / "all"),
            "--device",
            "cpu",
            *shlex.split(" ".join(question(text, None).options())),
        )
        answers = [name_of(quick["answer"]), name_of(full)]
        row = [
            text,
            str(len(quick["measured"])),
            f"{cost / 60:.1f} min",
            f"{whole / 60:.0f} min",
            f"{cost / whole:.1%}",
        ]
        print(f"| {' | '.join([*row, *answers])} |", flush=True)


def seconds_of_all(study: Path) -> float:
    """The time that the measurements of a study took, if it was not interrupted, by the times of its records."""
    times = sorted(datetime.fromisoformat(record.time) for record in read(study).records if record.task == "inference")
    return (times[-1] - times[0]).total_seconds() * len(times) / (len(times) - 1)


def name_of(answer: Mapping[str, Any]) -> str:
    """The favored model of an answer, or those that it is undecided between."""
    between = [choice["name"] for choice in answer["undecided_between"]]
    return answer["favored"]["name"] if answer["favored"] else " or ".join(between) or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("timm_results", type=Path, nargs="?", help="folder with timm's published tables")
    parser.add_argument("--seeds", type=int, default=5, help="how often every question is asked, with other noise")
    parser.add_argument("--real", action="store_true", help="measure on this machine")
    parser.add_argument("--study", type=Path, help="folder for the studies of --real")
    asked = parser.parse_args()
    if asked.real and asked.study:
        real(asked.study)
    elif asked.timm_results and not asked.real:
        recorded(asked.timm_results, asked.seeds)
    else:
        parser.error("name the folder of timm's tables, or --real --study DIR")


if __name__ == "__main__":
    main()
