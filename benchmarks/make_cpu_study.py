"""Make favor's example data and docs/cpu-study.md from a finished study of all models of Table 5.

favor run full --study cpu-study && python benchmarks/make_cpu_study.py cpu-study     2 hours, then some seconds

With `--earlier STUDY`, the page also says how far the two studies agree. With `--elsewhere STUDY`, the inference of the
same study on a processor with AVX-512 becomes `example:cpu-avx512`, and the page compares the two processors.
"""

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from favor.analyze import Comparison, Limit, Request, Scope, correlate, pareto, recommend
from favor.analyze.deviations import deviations
from favor.analyze.pareto import ParetoResult
from favor.analyze.reasons import dominated_by
from favor.atomic_file import write_whole
from favor.errors import RequestError
from favor.metrics import METRICS
from favor.records import counted_table, published_table, read, table_of
from favor.records.example import as_example
from favor.records.published import pareto_optimal
from favor.records.repeated import precedence_of
from favor.records.schema import Record, to_line
from favor.units import format_quantity
from favor.zoo.taxonomy import How

NAME, ELSEWHERE = "cpu", "cpu-avx512"
ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "src" / "favor" / "records" / "example"
DOCUMENT = ROOT / "docs" / "cpu-study.md"

DATASET = "imagenet-1k"
PAPER_FRONT = ("vit_ti16", "vit_s16", "efficientformerv2_s0", "swiftformer_s", "hivit_ti16", "efficientmod_s")
"""Models that D.3 names on its CPU's front of throughput and accuracy; it says "some of", so there may be more."""
PAPER_OFF_FRONT = ("vit_b16",)
"""Models that D.3 says are not on it."""

REPEATED = ("throughput", "latency_p50", "latency_p99", "inference_memory", "train_step_time", "train_memory")
LEAST_TO_CORRELATE = 5
SHOWN = ("top1", "throughput", "latency_p50", "inference_memory", "train_step_time", "train_memory", "macs")
TITLES = {
    "top1": "top-1",
    "throughput": "throughput",
    "latency_p50": "latency",
    "inference_memory": "memory",
    "train_step_time": "training step",
    "train_memory": "training memory",
    "macs": "multiply-adds",
}


@dataclass(frozen=True)
class Study:
    """The study's models, one row each, with published accuracies; flagged are those of another configuration."""

    table: pd.DataFrame
    rows: pd.DataFrame
    flagged: Mapping[str, str]
    front: ParetoResult
    failures: Sequence[Record]
    environment: Mapping[str, object]

    def row(self, name: str) -> pd.Series | None:
        own = self.rows[self.rows["name"] == name]
        return own.iloc[0] if len(own) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path, help="the folder of the finished study")
    parser.add_argument("--earlier", type=Path, metavar="STUDY", help="the same study on another day")
    parser.add_argument("--elsewhere", type=Path, metavar="STUDY", help="the same study on a processor with AVX-512")
    asked = parser.parse_args()
    examples = {NAME: shipped(read(asked.study).records)}
    if asked.elsewhere:
        inference = (record for record in read(asked.elsewhere).records if record.task == "inference")
        examples[ELSEWHERE] = shipped(inference, ELSEWHERE)
    for name, records in examples.items():
        write_whole(EXAMPLES / f"{name}.jsonl", b"".join(to_line(record) for record in records))
        print(f"{len(records)} records of {name}", file=sys.stderr)
    earlier = read(asked.earlier).records if asked.earlier else ()
    write_whole(DOCUMENT, document(examples[NAME], earlier, examples.get(ELSEWHERE, ())).encode())


def shipped(records: Iterable[Record], name: str = NAME) -> list[Record]:
    """What is worth shipping of a study: of each model and phase the newest quiet success, else the newest record."""
    newest: dict[tuple[str, str, object], Record] = {}
    for record in sorted(records, key=lambda record: (precedence_of(record), record.time or "")):
        if record.task in ("inference", "training") and record.source == "measured":
            newest[record.name, record.task, record.conditions.get("img_size")] = record
    if not newest:
        raise RequestError("the study has no measurements to ship; `favor run full` makes one")
    return [as_example(newest[key], name) for key in sorted(newest, key=str)]


def study_of(records: Sequence[Record]) -> Study:
    """The study in one table, in one setting."""
    own = table_of(records)
    table = pd.concat([published_table(), counted_table(), own], ignore_index=True)
    table = table[table["name"].isin(own["name"])].dropna(axis="columns", how="all").reset_index(drop=True)
    rows = Comparison(table, Scope(DATASET)).compare(["throughput"], "cpu").rows
    rows = rows[rows["throughput"].notna()].reset_index(drop=True)
    flagged = deviations(table, rows)
    sound = rows.assign(top1=rows["top1"].mask(rows["name"].isin(list(flagged))))
    measured = next(record for record in records if record.status == "ok")
    return Study(
        table=table,
        rows=rows,
        flagged=flagged,
        front=pareto(sound, ["top1", "throughput"]),
        failures=[record for record in records if record.status != "ok"],
        environment=measured.environment,
    )


def document(records: Sequence[Record], earlier: Sequence[Record] = (), elsewhere: Sequence[Record] = ()) -> str:
    """docs/cpu-study.md."""
    study = study_of(records)
    repeated = _agreement(records, earlier) if earlier else ""
    moved = _other_processor(records, elsewhere) if elsewhere else ""
    parts = [_head(study, records), _front(study), repeated, moved, _why(study), _table(study), _failures(study)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(study: Study, records: Sequence[Record]) -> str:
    told = study.environment
    models = len({record.name for record in records})
    setting = (
        f"{models} models at 224 px, fp32, eager, {told['threads']} threads on {told['device_name']} "
        f"({told['instructions']}), torch {told['torch']}, timm {told['timm']}. {_days(records)}"
    )
    return f"""# All models of the benchmark's Table 5 on two CPU cores

{setting}
Throughput is at the best batch size (searched), latency and memory at batch size 1; the training step has 8 images and
uses LAMB ([protocol.md](protocol.md)). Accuracies are those of the benchmark (*Which Transformer to Favor*), on
ImageNet-1k.

{_flags(records)}

The package ships these records: `favor recommend --study example:cpu --prefer throughput --min-accuracy 80` uses them
and says that they come from another machine. This page is generated by `favor run full --study cpu-study && python
benchmarks/make_cpu_study.py cpu-study`; do not edit it."""


def _days(records: Sequence[Record]) -> str:
    """When each phase was measured."""
    named = {"inference": "Inference was measured", "training": "training steps"}
    days = {
        said: min(record.time or "" for record in records if record.task == task)[:10]
        for task, said in named.items()
        if any(record.task == task for record in records)
    }
    return ", ".join(f"{said} on {day}" for said, day in days.items()) + "."


def _flags(records: Sequence[Record]) -> str:
    """How many measurements have a flag, and which."""
    flags = [str(record.environment.get("flags") or "").split() for record in records]
    counts = Counter(flag for of_record in flags for flag in of_record).most_common()
    said = f"{sum(map(bool, flags))} of {len(records)} measurements have a [flag](protocol.md#flags)"
    if not counts:
        return f"{said}."
    return f"{said}:\n\n{markdown(['flag', 'measurements'], [[f'`{flag}`', str(count)] for flag, count in counts])}"


def _front(study: Study) -> str:
    on_a100 = {found.family for found in pareto_optimal() if (found.constraint, found.phase) == ("speed", "inference")}
    names = dict.fromkeys([*study.front.members, *PAPER_FRONT, *PAPER_OFF_FRONT])
    rows = []
    for name in sorted(names, key=lambda name: -_number(study, name, "throughput")):
        row = study.row(name)
        if row is None:
            rows.append([name, "", "", "not measured", _on_paper(name), ""])
            continue
        family = row["family"]
        point = next((point for point in study.front.points if point.name == name), None)
        here = "flagged" if point is None else "yes" if point.member else "no"
        if point is not None and point.probability is not None and 0.05 < point.probability < 0.95:
            here += f" ({point.probability:.0%} of draws)"
        a100 = "yes" if family in on_a100 else ""
        rows.append([name, cell(row, "top1"), cell(row, "throughput"), here, _on_paper(name), a100])
    return f"""## The Pareto front of throughput and accuracy

A model is on the front if no other model is at least as good in both and better in one. The benchmark's appendix D.3
(Intel i9-12900H) names some models of its front; its Table 7 (A100) names families. The column "here" is by the values
themselves; parentheses give the share of draws in which the model is on the front ([decisions.md](decisions.md)).

{chr(10).join(_verdicts(study))}

{markdown(["model", "top-1", "throughput", "here", "D.3, CPU", "Table 7, A100"], rows)}"""


def _agreement(later: Sequence[Record], earlier: Sequence[Record]) -> str:
    """How far two studies of the same machine agree: an error bar that the intervals of one study do not show."""
    # A phase that was not measured again says nothing.
    known = {(record.name, record.task, record.time) for record in earlier}
    later = [record for record in later if (record.name, record.task, record.time) not in known]
    earlier = [record for record in earlier if record.task in {record.task for record in later}]
    days = [min(record.time or "" for record in records)[:10] for records in (earlier, later)]
    return f"""## How far two studies agree

The same study ran twice on the same kind of virtual machine, on {days[0]} and {days[1]}. Intervals cover the noise
within one session. They do not cover the load of other virtual machines on the same host, which changes from hour to
hour.

{_compared(earlier, later, *days)}"""


def _other_processor(records: Sequence[Record], elsewhere: Sequence[Record]) -> str:
    """How far the answers for one processor hold on another."""
    told, day = elsewhere[0].environment, min(record.time or "" for record in elsewhere)[:10]
    here = [record for record in records if record.task == "inference"]
    names = ["AVX2", "AVX-512"]
    return f"""## On another processor

The package also ships the inference measurements of this study on a newer processor of the same maker, with AVX-512:
`example:{ELSEWHERE}` ({told["device_name"]}, {told["threads"]} threads, {day}). {_flags(elsewhere)}

{_compared(here, elsewhere, *names)}"""


def _compared(before: Sequence[Record], after: Sequence[Record], *names: str) -> str:
    """Two studies by their numbers, fronts and answers."""
    rows = []
    for metric in REPEATED:
        readings = [
            {record.name: record.metrics[metric] for record in records if metric in record.metrics}
            for records in (before, after)
        ]
        models = sorted(readings[0].keys() & readings[1].keys())
        if len(models) < LEAST_TO_CORRELATE:
            continue
        old, new = (pd.Series([known[model].value for model in models], models) for known in readings)
        ratio = new / old
        off = (np.maximum(ratio, 1 / ratio) - 1).sort_values()
        overlaps = [
            max(a.low, b.low) <= min(a.high, b.high)
            for a, b in ((readings[0][model], readings[1][model]) for model in models)
            if None not in (a.low, a.high, b.low, b.high)
        ]
        rows.append(
            [
                METRICS[metric].title,
                str(len(models)),
                f"{old.rank().corr(new.rank()):.3f}",
                f"{ratio.median() - 1:+.1%}",
                f"{off.median():.1%}",
                f"{off.iloc[-1]:.1%} ({off.index[-1]})",
                f"{sum(overlaps)} of {len(overlaps)}" if overlaps else "",
            ]
        )
    studies = [study_of(records) for records in (before, after)]
    fronts = [set(study.front.members) for study in studies]
    only = [", ".join(sorted(one - other)) or "none" for one, other in (fronts, fronts[::-1])]
    answers = [_answers(study) for study in studies]
    asked = [[question, *(answer[question] for answer in answers)] for question in answers[0]]
    head = [
        "metric",
        "models",
        "rank correlation",
        "median change",
        "median difference",
        "largest",
        "intervals overlap",
    ]
    return f"""Change is the ratio of the second value to the first, minus 1. Difference is the ratio of the larger to
the smaller, minus 1. Overlaps are counted over models with an interval in both studies.

{markdown(head, rows)}

Fronts of throughput and accuracy: {len(fronts[0] & fronts[1])} models are on both. Only on the front of {names[0]}:
{only[0]}. Only on the front of {names[1]}: {only[1]}.

{markdown(["favored", *names], asked)}"""


def _answers(study: Study) -> dict[str, str]:
    """What `favor recommend` answers to a few questions."""
    answers = {}
    for wish, least in itertools.product(("throughput", "latency"), (75.0, 80.0, 83.0)):
        request = Request(wish, (Limit.named("min_accuracy", least),), DATASET, "cpu")
        answer = recommend(study.table, request)
        undecided = f"undecided: {', '.join(choice.name for choice in answer.undecided_between)}"
        answers[f"{wish}, at least {least:g} %"] = undecided if answer.favored is None else answer.favored.name
    return answers


def _on_paper(name: str) -> str:
    return "yes" if name in PAPER_FRONT else "no" if name in PAPER_OFF_FRONT else "not named"


def _verdicts(study: Study) -> list[str]:
    """Where the two fronts differ: which model beats which, and by how much."""
    members, told = set(study.front.members), []
    both = [name for name in PAPER_FRONT if name in members]
    if both:
        told.append(f"- On the front here and in D.3: {', '.join(both)}.")
    for name in PAPER_FRONT:
        row = study.row(name)
        if row is None or name in members or name in study.flagged:
            continue
        told.append(f"- {name} is on the paper's front but not here: {_beaten(study, row)}.")
    new = [name for name in study.front.members if name not in PAPER_FRONT]
    if new:
        told.append(f"- On the front here but not named in D.3: {', '.join(new)}.")
    for name in PAPER_OFF_FRONT:
        if name in members:
            told.append(f"- {name} is on the front here but not on the paper's.")
        elif study.row(name) is not None:
            told.append(f"- On neither the front here nor D.3's: {name}.")
    return told


def _beaten(study: Study, row: pd.Series) -> str:
    """The fastest model that beats another in accuracy and throughput, and how many more do."""
    alone = row.to_frame().T
    sound = study.rows[~study.rows["name"].isin(list(study.flagged)) & study.rows["top1"].notna()]
    beating = [other for _, other in sound.iterrows() if dominated_by(other, alone, ["top1", "throughput"])]
    best = max(beating, key=lambda other: float(other["throughput"]))
    faster = float(best["throughput"]) / float(row["throughput"])
    more = float(best["top1"]) - float(row["top1"])
    others = "" if len(beating) == 1 else f", and {len(beating) - 1} more beat it"
    return f"{best['name']} is {faster:.2f} times as fast and {more:.2f} points more accurate{others}"


def _why(study: Study) -> str:
    rows = study.rows[study.rows["macs"].notna()]
    rate = rows["throughput"] * rows["macs"]
    rated = rows.assign(rate=rate).sort_values("rate", ascending=False)
    pairs = {(pair.x, pair.y): pair for pair in correlate(rows, ["macs", "params", "throughput"]).pairs}
    compute, size = (pairs[cost, "throughput"].spearman for cost in ("macs", "params"))
    followed = "too few quiet measurements for a correlation"  # disturbed ones do not count
    if compute is not None and size is not None:
        followed = f"its Spearman correlation is\n  {compute:+.2f} with multiply-adds and {size:+.2f} with parameters"
    top, bottom = rated.head(8), rated.tail(8).iloc[::-1]
    paper = rated[rated["name"].isin([*PAPER_FRONT, *PAPER_OFF_FRONT])]
    return f"""## Why the fronts differ

- **Multiply-adds differ in cost.** Throughput follows them only in part: {followed}. Multiply-adds per second differ
  by a factor of {rate.max() / rate.min():.0f} between models: large dense matrix products run near the processor's
  peak; depthwise convolutions, gathers, many small operators and element-wise work do not.
- **Two cores are not fourteen.** The i9-12900H has 6 fast and 8 slow cores. More cores help large matrix products a lot
  and small operators little, so models with few multiply-adds should rank better on two cores.
- **What was timed.** Here, eager PyTorch in fp32, with models in inference form (`favor.fuse`), at the best batch size.
  D.3 states neither batch size nor threads nor precision for its CPU.
- **Accuracies are the same** here and in D.3, so only speed moves a model onto or off the front. Flagged models are
  never on the front, because their published accuracy belongs to a different configuration.

{_rates("Fastest per multiply-add", top)}

{_rates("Slowest per multiply-add", bottom)}

{_rates("Models of D.3", paper)}"""


def _rates(title: str, rows: pd.DataFrame) -> str:
    cells = [
        [row["name"], cell(row, "macs"), cell(row, "throughput"), f"{row['rate'] / 1e9:.1f} G/s"]
        for _, row in rows.iterrows()
    ]
    return markdown([title, "multiply-adds", "throughput", "rate"], cells)


def _table(study: Study) -> str:
    order = [how.key for how in How]
    rows = study.rows.assign(place=study.rows["how"].map(order.index)).sort_values(["place", "name"])
    members = set(study.front.members)
    cells = []
    for _, row in rows.iterrows():
        mark = " *" if row["name"] in study.flagged else ""
        name = f"**{row['name']}**" if row["name"] in members else str(row["name"])
        how = next(how.title for how in How if how.key == row["how"])
        cells.append([how, name + mark, *(cell(row, metric) for metric in SHOWN)])
    head = ["class", "model", *(TITLES[metric] for metric in SHOWN)]
    return f"""## All models

Models in bold are on the front of throughput and accuracy. * marks an accuracy that belongs to a different
configuration, which `favor recommend` describes.

{markdown(head, cells)}"""


def _failures(study: Study) -> str:
    if not study.failures:
        return ""
    rows = [[record.name, record.task, record.status, str(record.reason)] for record in study.failures]
    return f"## Failures\n\n{markdown(['model', 'phase', 'status', 'reason'], rows)}"


def _number(study: Study, name: str, metric: str) -> float:
    row = study.row(name)
    return 0.0 if row is None else float(row[metric])


def cell(row: pd.Series, metric: str) -> str:
    """A row's value of a metric as a table shows it; nothing where there is none."""
    if metric not in row.index or pd.isna(row[metric]):
        return ""
    return format_quantity(float(row[metric]), METRICS[metric].unit)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    main()
