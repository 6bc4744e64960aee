"""A made-up study of a reader: every metric that figures draw, for many models, two image sizes and two devices."""

import numpy as np
import pandas as pd

from favor.records import CardFields, Record, counted_table, published_table, reading
from favor.records.table import table_of

HOSTILE = "</script><img src=x onerror=alert(1)>"
HOST = {"host": "lab-3", "device_name": "a processor", "torch": "2.15.0", "threads": 2}


def published_only() -> pd.DataFrame:
    """What comes with favor: the papers' tables and our counts."""
    return pd.concat([published_table(), counted_table()], ignore_index=True)


def with_study(every: int = 2) -> pd.DataFrame:
    """The same with a study that was measured on a processor and simulated for a GPU; one name of it is hostile."""
    table = pd.concat([published_only(), table_of(study_records(every))], ignore_index=True)
    return table.assign(
        name=table["name"].replace({"hydra_s16": HOSTILE}), title=table["title"].replace({"Hydra": HOSTILE})
    )


def study_records(every: int = 2) -> list[Record]:
    """Records of the misnomer's models and of every so manieth of the benchmark's, at two image sizes.

    The numbers are plausible: work costs time, larger images cost more, and luck is seeded.
    """
    counted = counted_table()
    benchmark = set(published_table().query("pipeline == 'wtf-deit3'")["name"])
    counted = counted[counted["img_size"] == 224]
    misnomer = counted[counted["family"].isin(["vit", "universal", "switch", "misnomer", "hydra"])]
    others = counted[counted["name"].isin(list(benchmark)) & ~counted["name"].isin(misnomer["name"])]
    rng = np.random.default_rng(7)
    found: list[Record] = []
    for row in pd.concat([misnomer, others[::every]]).to_dict("records"):
        card = CardFields(*(row[key] for key in ("family", "title", "where", "how")), int(row["year"]), row["origin"])
        luck = rng.lognormal(0, 0.25)
        for size in (224, 384):
            work = row["macs"] / 1e9 * (size / 224) ** 2.2 * luck
            found += _costs(row["name"], card, size, work, row["params"], rng)
            if row["name"] in benchmark:
                found.append(_accuracy(row["name"], card, size, row["macs"] / 1e9, rng))
    return found


def _costs(
    name: str, card: CardFields, size: int, work: float, params: float, rng: np.random.Generator
) -> list[Record]:
    speed, hours = 180 / work, 1.5 * work * rng.lognormal(0, 0.2)
    run = {"img_size": size, "num_classes": 1000, "device": "cpu", "precision": "fp32"}
    inference = {
        "throughput": reading("throughput", speed, speed * 0.97, speed * 1.03, method="made up"),
        "latency_p50": reading("latency_p50", 1.2 / speed, 1.1 / speed, 1.3 / speed, method="made up"),
        "inference_memory": reading(
            "inference_memory", 4 * params + work * 2e7 * rng.lognormal(0, 0.5), method="made up"
        ),
    }
    training = {
        "train_hours_per_epoch": reading("train_hours_per_epoch", hours, hours * 0.9, hours * 1.1, method="made up"),
        "train_memory": reading("train_memory", 16 * params + work * 3e8 * rng.lognormal(0, 0.2), method="made up"),
    }
    gpu = speed * 60 * rng.lognormal(0, 0.4)
    simulated = {"throughput": reading("throughput", gpu, gpu * 0.8, gpu * 1.2, method="made up")}
    on_gpu = {"img_size": size, "num_classes": 1000, "device": "a100", "precision": "amp"}
    return [
        Record(name, card, "inference", "measured", {**run, "batch": "best"}, inference, environment=HOST),
        Record(name, card, "training", "measured", {**run, "batch_size": 8}, training, environment=HOST),
        Record(name, card, "inference", "simulated", on_gpu, simulated),
    ]


def _accuracy(name: str, card: CardFields, size: int, work: float, rng: np.random.Generator) -> Record:
    top1 = 74 + 3.5 * np.log2(1 + work) / 1.6 + (1.0 if size > 224 else 0) + rng.normal(0, 0.8)
    conditions = {
        "dataset": "imagenet-1k",
        "pipeline": "deit3-finetune@1",
        "pretraining": "imagenet-21k",
        "distillation": False,
        "img_size": size,
    }
    return Record(
        name, card, "accuracy", "measured", conditions, {"top1": reading("top1", min(top1, 86.5), method="made up")}
    )
