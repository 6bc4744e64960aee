"""The README.md of a repository on the Hugging Face Hub: what a model reaches and costs, and how that was measured."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from huggingface_hub import DatasetCardData, EvalResult, ModelCardData
from msgspec.structs import replace

from favor.analyze.intervals import accuracy_interval
from favor.metrics import METRICS
from favor.records.schema import Reading, Record, Scalar
from favor.text import in_markdown
from favor.training.state import Trained
from favor.units import format_quantity

RECORDS = "records.jsonl"
_SHOWN_CONDITIONS = ("img_size", "device", "runtime", "precision", "batch_size", "attention", "optimizer")
_QUALITIES = {"top1": "accuracy", "top5": "top-5 accuracy", "loss": "cross-entropy"}
"""Metric -> its type in a model index."""


@dataclass(frozen=True)
class Evidence:
    """The records of a pushed model: of the epoch of its weights if known, of its run's last epoch, and its costs."""

    evaluation: Record | None
    last: Record | None
    costs: tuple[Record, ...]

    @property
    def records(self) -> tuple[Record, ...]:
        """Each record once."""
        run = [record for record in (self.evaluation, self.last) if record is not None]
        return (*(run[:1] if len(run) > 1 and run[0] is run[1] else run), *self.costs)


def model_card(repository: str, trained: Trained, evidence: Evidence, url: str, in_timm: bool) -> str:
    """The card of a model with a `model-index`; `url` is where the repository will be."""
    data = ModelCardData(
        model_name=repository,
        library_name="timm" if in_timm else "favor",
        pipeline_tag="image-classification",
        tags=["image-classification", "favor"] + (["timm"] if in_timm else []),
        base_model=_base_model(trained),
        eval_results=list(_results(trained, evidence, url)),
    )
    in_python = [f'model = favor.create_model("{trained.model}", pretrained="hub:{repository}")']
    in_python += [f'model = timm.create_model("hf_hub:{repository}", pretrained=True)'] if in_timm else []
    in_shell = [
        f"$ favor predict hub:{repository} photo.jpg",
        f"$ favor finetune hub:{repository} --data folder:photos",
    ]
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# {repository.partition('/')[2]}",
        _training(trained, evidence),
        "\n".join(["```console", *in_shell, "```"]),
        "\n".join(["```python", *in_python, "```"]),
    ]
    if _needs_plugin(evidence):
        parts.append(
            f"{trained.model} is defined by a plugin, which is not part of this repository: "
            f"{in_markdown(_plugin(evidence))}."
        )
    parts += ["## Accuracy", _accuracy(trained, evidence), "## Cost"]
    rows = list(_cost_rows(evidence))
    parts.append(
        _table(("Metric", "Value", "95 % interval", "Conditions", "Method"), rows) if rows else "Not measured."
    )
    recipe = [(key, str(value)) for key, value in trained.recipe.flat().items()]
    parts += ["## Recipe", _table(("Key", "Value"), [(key.removeprefix("recipe."), value) for key, value in recipe])]
    if evidence.records:
        parts.append(f"[{RECORDS}]({RECORDS}) has these records with versions, environment and commit.")
    return "\n\n".join(parts) + "\n"


def study_card(repository: str, records: Sequence[Record], tables: Sequence[tuple[str, str]]) -> str:
    """The card of a study: a table for each dataset, and what the records are."""
    data = DatasetCardData(pretty_name=repository.partition("/")[2], tags=["favor", "benchmark"])
    models = len({record.name for record in records})
    machines = sorted({_machine(record) for record in records if "device_name" in record.environment})
    failed = sum(record.status != "ok" for record in records)
    measured_on = f" Measured on {in_markdown('; '.join(machines))}." if machines else ""
    said = f" {failed} of them are failures, with their reasons." if failed else ""
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# {repository.partition('/')[2]}",
        f"A study of favor: {len(records)} records of {models} models.{said}{measured_on}",
        *(part for title, table in tables for part in (f"## {in_markdown(title)}", table.rstrip())),
        f"[{RECORDS}]({RECORDS}) has one record per line; `favor report {RECORDS}` shows them.",
    ]
    return "\n\n".join(parts) + "\n"


def _machine(record: Record) -> str:
    environment = record.environment
    threads = environment.get("threads")
    word = "thread" if threads == 1 else "threads"
    return f"{environment['device_name']} ({threads} {word}, torch {environment.get('torch')})"


def _base_model(trained: Trained) -> str | None:
    """The repository of the published weights that the training started from."""
    first = trained.pretraining.partition("+")[0]
    return f"timm/{first.removeprefix('timm:')}" if first.startswith("timm:") else None


def _results(trained: Trained, evidence: Evidence, url: str) -> Iterator[EvalResult]:
    for name, reading in _qualities(trained, evidence).items():
        yield EvalResult(
            task_type="image-classification",
            dataset_type=trained.dataset,
            dataset_name=trained.dataset,
            metric_type=_QUALITIES[name],
            metric_name=f"{METRICS[name].title} [{METRICS[name].unit}]",
            metric_value=reading.value,
            source_name="favor" if evidence.evaluation else None,
            source_url=f"{url}/blob/main/{RECORDS}" if evidence.evaluation else None,
        )


def _qualities(trained: Trained, evidence: Evidence) -> dict[str, Reading]:
    """What these very weights reach."""
    if evidence.evaluation is not None:
        metrics, images = evidence.evaluation.metrics, evidence.evaluation.environment.get("evaluation_images")
        return {name: _over_images(metrics[name], images) for name in _QUALITIES if name in metrics}
    return {} if trained.top1 is None else {"top1": Reading(trained.top1, "%", method="written in the model file")}


def _over_images(reading: Reading, images: Scalar | None) -> Reading:
    """An accuracy with its interval over so many evaluation images."""
    if reading.unit != "%" or not isinstance(images, int):
        return reading
    low, high = accuracy_interval(reading.value, images)
    return replace(reading, low=low, high=high)


def _training(trained: Trained, evidence: Evidence) -> str:
    pretraining, dataset, recipe = map(in_markdown, (trained.pretraining, trained.dataset, trained.recipe.name))
    start = "from random weights" if pretraining == "none" else f"from weights of {pretraining}"
    reached = {} if evidence.last is None else evidence.last.conditions
    total = "" if "minutes" in reached else f" of {trained.recipe.epochs}"
    unfinished = "" if reached.get("final", True) is True else " The training is unfinished."
    return (
        f"`{trained.model}` trained {start} on {dataset} ({len(trained.classes)} classes) at "
        f"{trained.img_size} px with favor {in_markdown(trained.favor)} and the recipe {recipe}: the weights after "
        f"{trained.epochs:g}{total} epochs.{unfinished}"
    )


def _accuracy(trained: Trained, evidence: Evidence) -> str:
    readings = _qualities(trained, evidence)
    if not readings:
        return "Not evaluated."
    rows = [
        (METRICS[name].title, _number(reading), _interval(reading), reading.method)
        for name, reading in readings.items()
    ]
    selected = (
        "\n\nThe epoch was chosen by this accuracy, which is therefore slightly optimistic."
        if evidence.last is not None and evidence.last is not evidence.evaluation
        else ""
    )
    return _table((f"On {trained.dataset}", "Value", "95 % interval", "Method"), rows) + selected


def _cost_rows(evidence: Evidence) -> Iterator[tuple[str, ...]]:
    for record in (*([evidence.last] if evidence.last else []), *evidence.costs):
        conditions = _conditions(record)
        flags = str(record.environment.get("flags") or "")
        for name, reading in record.metrics.items():
            if METRICS[name].group != "quality":
                value = _number(reading) + (f" (flagged: {flags})" if flags else "")
                yield METRICS[name].title, value, _interval(reading), conditions, reading.method


def _conditions(record: Record) -> str:
    """Device, precision, batch and whatever else the numbers depend on."""
    known: dict[str, Scalar] = {**record.environment, **record.conditions}
    said = [f"{key} {known[key]}" for key in _SHOWN_CONDITIONS if key in known]
    where = [str(known["device_name"])] if "device_name" in known else []
    return ", ".join([*where, *said])


def _needs_plugin(evidence: Evidence) -> bool:
    return any(record.model.origin == "plugin" for record in evidence.records)


def _plugin(evidence: Evidence) -> str:
    return next(
        (str(record.environment["plugins"]) for record in evidence.records if "plugins" in record.environment),
        "unknown",
    )


def _number(reading: Reading) -> str:
    return format_quantity(reading.value, reading.unit)


def _interval(reading: Reading) -> str:
    if reading.low is None or reading.high is None:
        return ""
    return f"{format_quantity(reading.low, reading.unit)} to {format_quantity(reading.high, reading.unit)}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(in_markdown, line))} |" for line in lines)
