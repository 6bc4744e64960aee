"""Studies that nobody has run: what the page's tests show, small ones and large ones."""

import math
import random
from pathlib import Path

from msgspec.structs import replace

from favor.records import CardFields, Record, append, counted_records, reading
from favor.zoo.taxonomy import How

HOSTILE_NAME = "</script><img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>"
HOSTILE_WORD = "__proto__"

_HERE = {"host": "desk", "device_name": "a processor", "torch": "2.15.0", "threads": 2, "system": "Linux"}
_THERE = _HERE | {"host": "lab", "device_name": "another processor"}
_BENCHMARK = {"pipeline": "wtf-deit3", "pretraining": "imagenet-21k", "distillation": False, "img_size": 224}
_TIME = "2026-11-15T21:40:00Z"


def measured_zoo(folder: Path, seed: int = 0) -> Path:
    """Half of the zoo measured on one machine, some of it on another one, some simulated, and two failures."""
    pick = random.Random(seed)  # noqa: S311
    known = [record for record in counted_records() if record.conditions["img_size"] == 224]
    records = []
    for record in known:
        macs, params = record.metrics["macs"].value, record.metrics["params"].value
        if pick.random() < 0.7:
            records.append(_with_limited(_inference(pick, record.name, record.model, macs, params, _HERE)))
        if pick.random() < 0.2:
            records.append(_with_limited(_inference(pick, record.name, record.model, macs, params, _THERE)))
        if pick.random() < 0.5:
            training = _training(pick, record.name, record.model, macs)
            process = reading("train_memory_process", round(4e8 + 3 * macs), method="resident peak")
            records.append(replace(training, metrics={**training.metrics, "train_memory_process": process}))
        if pick.random() < 0.6:
            records.append(_simulated(pick, record.name, record.model, macs, params))
    failed = known[0]
    records += [
        _failure(failed.name, failed.model, "out_of_memory", "throughput: the allocator refused 3.2 GB"),
        _failure(HOSTILE_NAME, CardFields(), "failed", f"{HOSTILE_NAME} broke"),
    ]
    append(folder, records)
    return folder


def many_models(folder: Path, count: int, seed: int = 0) -> Path:
    """So many models that are in no zoo, each with counts, costs and an accuracy that compares with the benchmark's."""
    pick = random.Random(seed)  # noqa: S311
    records = []
    for number in range(count):
        how = pick.choice(list(How))
        name = f"made_up_{number:04d}"
        card = CardFields(
            f"family_{number % 97}", f"Made-up {number}", how.where.key, how.key, pick.randint(2017, 2026), "own"
        )
        params = 10 ** pick.uniform(6.4, 8.6)
        macs = params * 10 ** pick.uniform(1.8, 2.6)
        accuracy = min(89.5, 55 + 4.2 * math.log(params / 1e6) + pick.gauss(8, 2.5))
        records.append(_inference(pick, name, card, macs, params, _HERE))
        records.append(_training(pick, name, card, macs))
        records.append(_accuracy(name, card, accuracy))
        records.append(
            Record(
                name,
                card,
                "count",
                "measured",
                {"img_size": 224, "num_classes": 1000, "batch_size": 1},
                {
                    "params": reading("params", int(params), method="counted"),
                    "macs": reading("macs", int(macs), method="counted"),
                },
            )
        )
    append(folder, records)
    return folder


def hostile(folder: Path) -> Path:
    """Records whose every text tries to become part of the page."""
    card = CardFields(HOSTILE_NAME, HOSTILE_NAME, "token_mixing", "kernel", 2024, HOSTILE_WORD)
    words = {HOSTILE_WORD: HOSTILE_NAME, "constructor": HOSTILE_NAME, "device": HOSTILE_NAME, "img_size": 224}
    run = {"throughput": reading("throughput", 900.0, 890.0, 910.0, method=HOSTILE_NAME)}
    records = []
    for name in (HOSTILE_NAME, HOSTILE_WORD, "constructor", "a\u2028b", "vit_s16'\"`${x}"):
        records.append(_accuracy(name, card, 83.5))
        records.append(
            Record(
                name,
                card,
                "inference",
                "measured",
                words,
                run,
                environment=_HERE | {HOSTILE_WORD: HOSTILE_NAME},
                time=_TIME,
            )
        )
        records.append(_failure(name, card, "failed", HOSTILE_NAME))
    append(folder, records)
    return folder


def _inference(
    pick: random.Random, name: str, card: CardFields, macs: float, params: float, environment: dict[str, str | int]
) -> Record:
    speed = 4e11 / macs * math.exp(pick.gauss(0, 0.5))
    latency = 1 / speed * pick.uniform(1.1, 1.6)
    memory = params * 4 + macs / 40 * pick.uniform(0.7, 1.4)
    metrics = {
        "throughput": reading("throughput", speed, speed * 0.985, speed * 1.02, method="median of blocks"),
        "latency_p50": reading("latency_p50", latency, latency * 0.98, latency * 1.03, method="median"),
        "inference_memory": reading("inference_memory", round(memory), method="peak of the allocator"),
    }
    for metric in [one for one in metrics if pick.random() < 0.08]:
        del metrics[metric]
    conditions = {"img_size": 224, "num_classes": 1000, "device": "cpu", "precision": "fp32"}
    return Record(name, card, "inference", "measured", conditions, metrics, environment=environment, time=_TIME)


def _with_limited(record: Record) -> Record:
    """The record with the numbers that `--max-p99` and `--max-process-memory` limit."""
    metrics = dict(record.metrics)
    if "latency_p50" in metrics:
        metrics["latency_p99"] = reading("latency_p99", 1.4 * metrics["latency_p50"].value, method="percentile")
    if "inference_memory" in metrics:
        process = round(metrics["inference_memory"].value + 4e8)
        metrics["memory_process"] = reading("memory_process", process, method="resident peak")
    return replace(record, metrics=metrics)


def _training(pick: random.Random, name: str, card: CardFields, macs: float) -> Record:
    batch = pick.choice([32, 32, 32, 64])
    step = macs * 3 * batch / 2e11 * math.exp(pick.gauss(0, 0.4))
    metrics = {"train_step_time": reading("train_step_time", step, step * 0.97, step * 1.04, method="median")}
    conditions = {"img_size": 224, "num_classes": 1000, "device": "cpu", "precision": "fp32", "batch_size": batch}
    return Record(name, card, "training", "measured", conditions, metrics, environment=_HERE, time=_TIME)


def _simulated(pick: random.Random, name: str, card: CardFields, macs: float, params: float) -> Record:
    metrics = {
        "throughput": reading("throughput", 3e13 / macs * pick.uniform(0.5, 1), method="roofline"),
        "inference_memory": reading("inference_memory", round(params * 4.4), method="traced"),
    }
    conditions = {"img_size": 224, "num_classes": 1000, "device": "a100", "precision": "amp"}
    return Record(name, card, "inference", "simulated", conditions, metrics)


def _accuracy(name: str, card: CardFields, accuracy: float) -> Record:
    metrics = {"top1": reading("top1", round(accuracy, 2), method="on the validation images")}
    return Record(
        name,
        card,
        "accuracy",
        "measured",
        {"dataset": "imagenet-1k", **_BENCHMARK},
        metrics,
        environment=_HERE,
        time=_TIME,
    )


def _failure(name: str, card: CardFields, status: str, reason: str) -> Record:
    conditions = {"img_size": 224, "device": "cpu", "precision": "fp32", HOSTILE_WORD: HOSTILE_NAME}
    return Record(
        name, card, "training", "measured", conditions, status=status, reason=reason, environment=_HERE, time=_TIME
    )
