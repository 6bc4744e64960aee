"""The papers' tables of models as records of source `published`, every value as printed."""

from collections.abc import Mapping
from functools import cache

from msgspec.structs import replace

from favor.records.published.rows import rows
from favor.records.schema import STATUSES, CardFields, Reading, Record, Scalar, Status, Task, reading

FAVOR = "which_transformer_to_favor"
MISNOMER = "the_efficiency_misnomer"
X_FORMERS = "hybrid_x_formers_for_vision"

DATASETS = ("imagenet-1k", "cars", "flowers102", "places365")

# The benchmark's own training: DeiT III's pipeline after pretraining on ImageNet-21k, without distillation.
_FAVOR_TRAINING: dict[str, Scalar] = {
    "img_size": 224,
    "pipeline": "wtf-deit3",
    "pretraining": "imagenet-21k",
    "distillation": False,
    "ema": False,
}
_MISNOMER_RUN: dict[str, Scalar] = {"img_size": 224, "pipeline": "misnomer", "device": "tpu-v3", "device_count": 64}
_MISNOMER_CLASSES = 18291  # of the pretraining: not printed, but only with such a head do Table 2's parameters come out
_X_FORMERS_RUN: dict[str, dict[str, Scalar]] = {
    "cifar10": {"dataset": "cifar10", "img_size": 32, "num_classes": 10},
    "tiny-imagenet": {"dataset": "tiny-imagenet", "img_size": 64, "num_classes": 200},
}

_MIB = 2**20
_STATUSES: dict[str, Status] = {status: status for status in STATUSES}


@cache
def card_fields() -> Mapping[str, CardFields]:
    """The card fields of every model of the papers' tables, by its name in the zoo."""
    return {
        row["name"]: CardFields(row["family"], row["title"], row["where"], row["how"], int(row["year"]), row["origin"])
        for row in rows("models.csv")
    }


@cache
def records() -> tuple[Record, ...]:
    """All published records: each is one row of a table, or one of its accuracies where the row has several."""
    return (
        *_favor_table1(),
        *_favor_table5(),
        *_favor_failures(),
        *_misnomer_table1(),
        *_misnomer_table2(),
        *_x_formers_tables(),
    )


def _favor_table1() -> list[Record]:
    """The accuracy in the original paper and in the new pipeline; both have the same provenance, which pairs them."""
    records = []
    for row in rows("favor_table1.csv"):
        original: dict[str, Scalar] = {
            "dataset": "imagenet-1k",
            "img_size": int(row["original_img_size"]),
            "pipeline": "original",
            "deit_based": row["deit_based"] == "yes",
            "distillation": row["original_distillation"] == "yes",
            "ema": row["original_ema"] == "yes",
        }
        ours = {"dataset": "imagenet-1k", **_FAVOR_TRAINING}
        for conditions, value in ((original, row["original_top1"]), (ours, row["top1"])):
            records.append(_record(FAVOR, "1", row, "accuracy", conditions, {"top1": _printed("top1", value)}))
    return records


def _favor_table5() -> list[Record]:
    return [
        _record(
            *(FAVOR, "5", row, "accuracy"),
            {"dataset": dataset, **_FAVOR_TRAINING},
            {"top1": _printed("top1", row[dataset])},
        )
        for row in rows("favor_table5.csv")
        for dataset in DATASETS
        if row[dataset]
    ]


def _favor_failures() -> list[Record]:
    return [
        Record(
            name=row["name"],
            model=card_fields()[row["name"]],
            task="training",
            source="published",
            conditions={"dataset": "imagenet-21k", **_FAVOR_TRAINING},
            status=_STATUSES[row["status"]],
            reason=row["reason"],
            provenance={"paper": FAVOR, "section": "D.1", "row": row["row"]},
        )
        for row in rows("favor_failures.csv")
    ]


def _misnomer_table1() -> list[Record]:
    return [
        _record(
            *(MISNOMER, "1", row, "inference"),
            {"tokens": int(row["tokens"]), **_MISNOMER_RUN},
            _misnomer_costs(row),
        )
        for row in rows("misnomer_table1.csv")
    ]


def _misnomer_table2() -> list[Record]:
    sizes = ("layers", "ffn_dim", "qkv_dim", "heads")
    return [
        _record(
            *(MISNOMER, "2", row, "accuracy"),
            {
                "dataset": "imagenet-1k",
                "num_classes": _MISNOMER_CLASSES,
                **{size: int(row[size]) for size in sizes},
                **_MISNOMER_RUN,
            },
            {"top1": _printed("top1", row["top1"]), **_misnomer_costs(row)},
        )
        for row in rows("misnomer_table2.csv")
    ]


def _misnomer_costs(row: Mapping[str, str]) -> dict[str, Reading]:
    return {
        "params": reading("params", round(float(row["params_m"]) * 1e6), method="printed in millions"),
        "macs": reading("macs", round(float(row["gmacs"]) * 1e9), method="printed as GFLOPs, which are multiply-adds"),
        "throughput": _throughput(row["ms_per_image"]),
    }


def _throughput(milliseconds: str) -> Reading:
    """Images per second from printed milliseconds per image, with the interval that the rounding leaves.

    >>> _throughput("0.50").value
    2000.0
    """
    printed = float(milliseconds)
    half_a_digit = 0.5 * 10.0 ** -len(milliseconds.partition(".")[2])
    low, high = 1000 / (printed + half_a_digit), 1000 / (printed - half_a_digit)
    method = "one over the printed milliseconds per image; the interval is what rounding leaves; batch size not stated"
    return reading("throughput", 1000 / printed, low, high, method=method)


def _x_formers_tables() -> list[Record]:
    records = []
    for row in rows("xformers_tables.csv"):
        metrics = {name: _printed(name, row[name]) for name in ("top1", "top5")}
        metrics["train_memory"] = reading(
            "train_memory",
            round(float(row["gpu_gb"]) * 1e9),
            method="GPU usage printed in GB",
        )
        if row["params_paper"]:
            metrics["params_paper"] = _printed("params_paper", row["params_paper"])
            metrics["model_size_paper"] = reading(
                "model_size_paper", round(float(row["size_mb"]) * _MIB), method="printed in MB of 1024 x 1024 bytes"
            )
        conditions: dict[str, Scalar] = {
            **_X_FORMERS_RUN[row["dataset"]],
            "pipeline": "vix",
            "batch_size": 64,
            "precision": "amp-fp16",
            "device": "p100 or t4",
            "distillation": False,
        }
        records.append(_record(X_FORMERS, row["table"], row, "accuracy", conditions, metrics))
    return records


def _record(
    paper: str,
    table: str,
    row: Mapping[str, str],
    task: Task,
    conditions: Mapping[str, Scalar],
    metrics: Mapping[str, Reading],
) -> Record:
    notes = _notes()
    return Record(
        name=row["name"],
        model=card_fields()[row["name"]],
        task=task,
        source="published",
        conditions=conditions,
        metrics={name: _noted(value, notes.get((paper, table, row["row"], name))) for name, value in metrics.items()},
        provenance={"paper": paper, "table": table, "row": row["row"]},
    )


def _printed(metric_name: str, value: str) -> Reading:
    return reading(metric_name, float(value), method="printed")


def _noted(value: Reading, note: str | None) -> Reading:
    return value if note is None else replace(value, method=f"{value.method}; {note}")


@cache
def _notes() -> Mapping[tuple[str, str, str, str], str]:
    """Known errors of printed values, which are kept as printed."""
    return {(row["paper"], row["table"], row["row"], row["metric"]): row["note"] for row in rows("notes.csv")}
