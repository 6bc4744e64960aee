"""The tables of docs/simulation-accuracy.md that compare with the papers: Figure 1, Table 6 and training memory.

python benchmarks/simulation_tables.py        about 4 minutes; prints Markdown
"""

from scipy.stats import pearsonr, spearmanr

from favor.analyze import pareto
from favor.records import counted_records, published, published_table
from favor.records.schema import EAGER
from favor.simulation.devices import device
from favor.simulation.networks import network
from favor.simulation.shipped import shipped_records
from favor.simulation.simulation import Passes

BATCH = 2048
MEMORY_MODELS = ("vit_ti16", "vit_s16", "vit_b16", "deit_s16", "swin_ti", "xcit_s12_p16", "nextvit_s", "resnet50")
XFORMERS_BATCH = 64


def main() -> None:
    front()
    hardware()
    training_memory()
    xformers_memory()


def speeds(on: str) -> dict[str, float]:
    """The simulated throughputs on a built-in device, in eager mode."""
    asked = ("inference", EAGER)
    found = (r for r in shipped_records(on) if (r.task, r.conditions["runtime"]) == asked)
    return {record.name: record.metrics["throughput"].value for record in found}


def front() -> None:
    """Accuracy of Table 5 against simulated throughput; by the paper's rule, a dominated model is worse in both."""
    table = published_table()
    accuracy = table[
        (table["provenance"].str.contains("Table 5", na=False))
        & (table["dataset"] == "imagenet-1k")
        & (table["status"] == "ok")
    ]
    rows = accuracy.drop_duplicates("name").assign(throughput=lambda t: t["name"].map(speeds("a100")))
    known = rows.dropna(subset=["throughput"])
    result = pareto(known.reset_index(drop=True), ["top1", "throughput"], strict=True)
    members = sorted(result.front, key=lambda point: -point.values["throughput"])
    of_paper = {
        found.family
        for found in published.pareto_optimal()
        if (found.constraint, found.phase) == ("speed", "inference") and found.img_size == 224
    }
    families = dict(zip(rows["name"], rows["family"], strict=True))
    print(f"{len(known)} of {len(rows)} models of Table 5 are simulated\n")
    print("| on the simulated front | top-1 | img/s | family on the paper's front |\n|---|---:|---:|---|")
    for point in members:
        on_both = "yes" if families[point.name] in of_paper else "no"
        print(f"| {point.name} | {point.values['top1']:.2f} | {point.values['throughput']:,.0f} | {on_both} |")
    found = {families[point.name] for point in members}
    print(f"\nfamilies on both: {', '.join(sorted(found & of_paper))}")
    print(f"on the paper's only: {', '.join(sorted(of_paper - found))}")
    print(f"on the simulated only: {', '.join(sorted(found - of_paper))}\n")


def hardware() -> None:
    """The correlation of two GPUs' speeds; the paper's Table 6 has A100 and RTX 3090."""
    here, there = speeds("a100"), speeds("rtx3090")
    both = [name for name in here if name in there]
    pairs = [here[name] for name in both], [there[name] for name in both]
    print(f"A100 and RTX 3090, {len(both)} models: r {pearsonr(*pairs)[0]:.3f}, Spearman {spearmanr(*pairs)[0]:.3f}\n")


def training_memory() -> None:
    """Memory of a training step of 2048 images: live storages beside the paper's formula."""
    operations = {record.name: record.metrics["ops_mixed"].value / 1e9 for record in counted_records()}
    formula = published.VRAM_FORMULA
    print(f"| model | G operations | simulated, batch {BATCH} | the paper's formula | largest batch, A100 80 GB |")
    print("|---|---:|---:|---:|---:|")
    for name in MEMORY_MODELS:
        step = Passes(network(name, "training", "amp", img_size=224), "lamb").footprint
        by_formula = formula.slope * operations[name] + formula.intercept
        largest = step.largest_batch(device("a100-80gb"))
        print(
            f"| {name} | {operations[name]:.2f} | {step.peak(BATCH) / 1e9:.0f} GB | {by_formula:.0f} GB | {largest} |"
        )
    print()


def xformers_memory() -> None:
    """The X-formers' column of GPU memory: training at batch 64 in mixed precision."""
    print("| model | dataset | px | simulated | the paper's GPU column |\n|---|---|---:|---:|---:|")
    for record in published.records():
        printed = record.metrics.get("train_memory")
        if printed is None or record.conditions.get("pipeline") != "vix" or record.status != "ok":
            continue
        size, classes = int(record.conditions["img_size"]), 10 if record.conditions["dataset"] == "cifar10" else 200
        step = Passes(network(record.name, "training", "amp", size, classes), "adamw").footprint
        simulated = step.peak(XFORMERS_BATCH) / 1e9
        data = record.conditions["dataset"]
        print(f"| {record.name} | {data} | {size} | {simulated:.1f} GB | {printed.value / 1e9:.1f} GB |", flush=True)


if __name__ == "__main__":
    main()
