"""The page docs/vix.md: the X-formers' tables with the paper's count of parameters and the true one.

python benchmarks/vix_table.py > docs/vix.md        about 10 seconds
"""

from dataclasses import dataclass
from itertools import combinations

import torch

from favor.records import published
from favor.trace.paper_params import params_paper
from favor.zoo.registry import create_model

PAPER = "hybrid_x_formers_for_vision"
SETTINGS = {"cifar10": (10, 32), "tiny-imagenet": (200, 64)}
"""Data set -> classes, side of an image in px."""
TITLES = {
    "1": "Table 1: ViX and hybrid ViX on CIFAR-10",
    "2": "Table 2: ViX and hybrid ViX on Tiny ImageNet",
    "3": "Table 3: LeViX, CCX and CvX on CIFAR-10",
    "4": "Table 4: LeViX, CCX and CvX on Tiny ImageNet",
    "5": "Table 5: PiX and hybrid PiX on CIFAR-10",
}
INTRODUCTION = """# The Vision X-formers and how they were counted

The paper "Resource-efficient Hybrid X-formers for Vision" compares 38 small models on CIFAR-10 (32 px) and Tiny
ImageNet (64 px), all on sequences of 1024 patches. They are in the zoo as `vix_*` (`favor list "vix_*"`): width 128,
four blocks, four heads. `favor show NAME` tells where the paper's text and its counts disagree, and what was built.

This page is made by `python benchmarks/vix_table.py > docs/vix.md`.

## Two counts

The paper's parameters were counted by a tool that sums `weight` and `bias` of PyTorch's own modules. Whatever else a
network learns is left out: the class token, learned positions (131,200 numbers), Linformer's projections along the
sequence (65,600 a block), and the norms of the CvX models, which are written by hand. `favor count` gives the true
count, `favor.trace.paper_params.params_paper` the paper's.

| column | meaning |
|---|---|
| paper | parameters as printed |
| by its convention | what `params_paper` counts on our model: as printed in {right} of {rows} rows, else a misprint |
| true | all parameters |
| left out | the difference |
| rank | 1 is the smallest model of the table: by the paper's convention -> in truth |
| top-1 | printed, in % |
"""
TABLE_6 = """
## Table 6: rotary positions

The paper prints no parameters for these eight models and says that rotary positions do not change their number. By its
convention they do not, as learned positions were never counted, but for ViL: with rotary positions its code has four
heads of keys instead of one, 49,152 parameters more. (The published code of Hybrid ViL has four without them, too;
Table 1 prints the count of one, which is built here.) In truth every model loses the 131,200 parameters of its learned
positions (the authors' code still allocates them for ViT and ViL, without using them; ours does not).

| model | name | by the convention | true | true with learned positions |
|---|---|---|---|---|"""


@dataclass(frozen=True)
class Row:
    """A row of the paper with our two counts."""

    table: str
    title: str
    name: str
    printed: int
    misprint: bool
    convention: int
    true: int
    top1: float


def counted(name: str, dataset: str) -> tuple[int, int]:
    """Parameters by the paper's convention, and all of them."""
    classes, side = SETTINGS[dataset]
    with torch.device("meta"):
        model = create_model(name, num_classes=classes, img_size=side)
    return params_paper(model), sum(parameter.numel() for parameter in model.parameters())


def rows() -> list[Row]:
    """Tables 1 to 5."""
    found = []
    for record in published.records():
        if record.provenance["paper"] == PAPER and "params_paper" in record.metrics:
            printed = record.metrics["params_paper"]
            convention, true = counted(record.name, str(record.conditions["dataset"]))
            found.append(
                Row(
                    table=str(record.provenance["table"]),
                    title=record.model.title,
                    name=record.name,
                    printed=int(printed.value),
                    misprint="misprint" in printed.method,
                    convention=convention,
                    true=true,
                    top1=record.metrics["top1"].value,
                )
            )
    return found


def table_lines(table: list[Row]) -> list[str]:
    """One of the tables in Markdown, with the models' ranks by size."""
    by_convention = sorted(row.convention for row in table)
    by_truth = sorted(row.true for row in table)
    lines = ["| model | name | paper | by its convention | true | left out | rank | top-1 |", "|---" * 8 + "|"]
    for row in table:
        printed = f"{row.printed:,}" + (f" (misprint of {row.convention:,})" if row.misprint else "")
        ranks = f"{by_convention.index(row.convention) + 1} -> {by_truth.index(row.true) + 1}"
        lines.append(
            f"| {row.title} | `{row.name}` | {printed} | {row.convention:,} | {row.true:,} | "
            f"{row.true - row.convention:,} | {ranks} | {row.top1:.2f} |"
        )
    return lines


def turned_pairs(table: list[Row]) -> list[tuple[Row, Row]]:
    """Pairs of which the first is the smaller by the paper's convention and the larger in truth."""
    ordered = sorted(table, key=lambda row: row.convention)
    return [(a, b) for a, b in combinations(ordered, 2) if a.true > b.true]


def turned_sentence(table: list[Row]) -> str:
    """What the true count does to the ranking."""
    pairs = turned_pairs(table)
    total = len(table) * (len(table) - 1) // 2
    if not pairs:
        return (
            f"None of the {total} pairs of models changes its order: all leave out the same, class token and positions."
        )
    larger: dict[str, list[str]] = {}
    for a, b in pairs:
        larger.setdefault(a.title, []).append(b.title)
    said = "; ".join(f"{title} is larger than {', '.join(others)}" for title, others in larger.items())
    return f"{len(pairs)} of the {total} pairs of models change their order: in truth {said}."


def page() -> str:
    """The whole page."""
    found = rows()
    lines = [INTRODUCTION.format(rows=len(found), right=sum(row.convention == row.printed for row in found))]
    for table, title in TITLES.items():
        of_table = [row for row in found if row.table == table]
        lines += [f"## {title}", "", *table_lines(of_table), "", turned_sentence(of_table), ""]
    lines += [
        "## What that does to the ranking by size",
        "",
        *ranking({(row.table, row.name): row for row in found}),
        TABLE_6,
    ]
    for record in published.records():
        if record.provenance["paper"] == PAPER and record.provenance.get("table") == "6":
            convention, true = counted(record.name, "cifar10")
            learned = counted(record.name.removesuffix("_rope"), "cifar10")[1]
            lines.append(f"| {record.model.title} | `{record.name}` | {convention:,} | {true:,} | {learned:,} |")
    return "\n".join(lines)


def ranking(row: dict[tuple[str, str], Row]) -> list[str]:
    """The paper's sentences about size, and what is left of them."""
    vit, vil, hybrid_vil = row["1", "vix_vit"], row["1", "vix_vil"], row["1", "vix_hybrid_vil"]
    fnet, levil, levit = row["1", "vix_fnet"], row["3", "vix_levil"], row["3", "vix_levit"]
    ccl, cct, cvl, cvt = (row["3", f"vix_{name}"] for name in ("ccl", "cct", "cvl", "cvt"))
    more = vil.true / vit.true - 1
    projections = vil.true - vil.convention - (vit.true - vit.convention)
    return [
        f'- "ViL uses a significantly lower number of parameters" (section 5.1): it has {vil.true:,}, {more:.0%} more',
        f"  than ViT ({vit.true:,}), and is the largest of the four attentions. Its projections alone have",
        f"  {projections:,} parameters.",
        f"- The hybrid ViL too (section 5.2): {hybrid_vil.true:,}, the largest hybrid but for the MLP-Mixer.",
        f"- FNet stays the smallest, with {fnet.true / vit.true:.0%} of ViT's parameters instead of the",
        f"  {fnet.convention / vit.convention:.0%} of section 5.1.",
        f"- LeViL ({levil.true:,}) is the largest of the LeViX models, not the smallest (LeViT has {levit.true:,}),",
        f"  and CCL ({ccl.true:,}) the largest of the CCX models (CCT has {cct.true:,}).",
        f"- CvT ({cvt.true:,}) remains larger than CvL ({cvl.true:,}), but only as its heads are twice as wide as",
        "  those of the CvX models: the comparison in Tables 3 and 4 is not one of equal widths.",
        "- Between ViT, ViP and ViN nothing changes: they leave out the same.",
        "",
        "Size is what the paper's ranking had wrong; its accuracies and its GPU memory are not touched by it.",
    ]


if __name__ == "__main__":
    print(page())
