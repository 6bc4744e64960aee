"""The table of docs/counting.md: our multiply-adds beside fvcore's, PyTorch's FlopCounterMode's and the published ones.

python benchmarks/count_table.py        about 3 minutes; prints Markdown
"""

import logging
import warnings
from dataclasses import dataclass

import torch
from fvcore.nn import FlopCountAnalysis
from torch.utils.flop_counter import FlopCounterMode

from favor.trace.counts import count
from favor.zoo.registry import create_model


@dataclass(frozen=True)
class Published:
    """Multiply-adds in G at 224 px as the authors print them, and where."""

    gmacs: str
    source: str


PUBLISHED = {
    "vit_s16": Published("4.66", "the benchmark, its own convention"),
    "vit_b16": Published("17.63", "Efficiency Misnomer, Table 1"),
    "resnet50": Published("", ""),
    "mixer_b16": Published("12.7", "microsoft/Swin-Transformer, README"),
    "swin_ti": Published("4.5", "microsoft/Swin-Transformer, README"),
    "swin_s": Published("8.7", "microsoft/Swin-Transformer, README"),
    "cait_s24": Published("9.4", "facebookresearch/deit, README_cait"),
    "coat_ti": Published("", ""),
    "cvt_13": Published("4.5", "microsoft/CvT, README"),
    "cvt_21": Published("7.1", "microsoft/CvT, README"),
    "focalnet_ti": Published("4.4", "microsoft/FocalNet, README"),
    "focalnet_s": Published("8.6", "microsoft/FocalNet, README"),
    "gfnet_ti16": Published("1.3", "raoyongming/GFNet, README"),
    "gfnet_s16": Published("4.5", "raoyongming/GFNet, README"),
    "gfnet_b16": Published("7.9", "raoyongming/GFNet, README"),
    "nextvit_s": Published("5.8", "bytedance/Next-ViT, README"),
    "rest_lite": Published("1.4", "wofmanaf/ResT, README"),
    "rest_s": Published("1.9", "wofmanaf/ResT, README"),
    "efficientformerv2_s0": Published("", ""),
    "dynamicvit_s16": Published("2.9", "raoyongming/DynamicViT, README"),
}


def fvcore_gmacs(name: str) -> float:
    """fvcore's total with the operators that it knows, on a real network: it cannot trace without weights."""
    analysis = FlopCountAnalysis(create_model(name, img_size=224).eval(), torch.zeros(1, 3, 224, 224))
    return analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).total() / 1e9


def flop_counter_gmacs(name: str) -> float:
    """PyTorch's own counter, two operations per multiply-add, on meta tensors."""
    with torch.device("meta"):
        model = create_model(name, img_size=224).eval().requires_grad_(False)  # its module tracker fails on some else
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.empty(1, 3, 224, 224, device="meta"))
    return counter.get_total_flops() / 2e9


def main() -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    print("| model | macs_matmul | macs | flops | ops_mixed | fvcore | FlopCounterMode / 2 | published | source |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---|")
    for name, published in PUBLISHED.items():
        ours = count(name, img_size=224)
        figures = (ours.macs_matmul, ours.macs, ours.flops, ours.ops_mixed)
        cells = [f"{figure / 1e9:.3f}" for figure in figures]
        cells += [f"{fvcore_gmacs(name):.3f}", f"{flop_counter_gmacs(name):.3f}"]
        print(f"| {name} | {' | '.join(cells)} | {published.gmacs or '-'} | {published.source or '-'} |", flush=True)


if __name__ == "__main__":
    main()
