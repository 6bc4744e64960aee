"""The speed and memory of counting: seconds per model compared with fvcore, and the peak memory for ViT-L.

    python benchmarks/count_speed.py                     a dozen models, about 4 minutes
    python benchmarks/count_speed.py 'vit_*' swin_ti     models of your choice
    python benchmarks/count_speed.py --ours '*'          the whole zoo, without fvcore

Target: the median over the zoo at most 1 s, 5 times faster than fvcore, ViT-L in under 300 MB above torch.
Run it on an idle machine. Both are timed from the name to the figure, building included, best of three.
"""

import argparse
import logging
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import torch

from favor.trace.counts import count
from favor.zoo.matching import matching_models
from favor.zoo.registry import create_model

MODELS = (
    *("vit_ti16", "vit_s16", "vit_b16", "resnet50", "swin_ti", "coat_lite_ti", "cvt_13", "focalnet_ti"),
    *("gfnet_s16", "linformer_s16", "efficientvit_b1", "mixer_s16"),
)

MEMORY_SCRIPT = """
import psutil, torch
from pathlib import Path
before = psutil.Process().memory_info().rss
from favor.trace.counts import count
count("vit_l16")
# The peak of this process alone (Linux): getrusage includes the parent's peak.
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024 - before)
"""


def seconds(action: Callable[[str], object], name: str) -> float:
    """The best of three: other load on the machine only adds time."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        action(name)
        best = min(best, time.perf_counter() - start)
    return best


def count_with_fvcore(name: str) -> None:
    from fvcore.nn import FlopCountAnalysis

    analysis = FlopCountAnalysis(create_model(name).eval(), torch.zeros(1, 3, 224, 224))
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).total()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--ours", action="store_true", help="leave fvcore out")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    names = matching_models(arguments.names)
    count("resnet18")  # imports timm, which should not be timed
    ours, ratios = [], []
    for name in names:
        ours.append(seconds(count, name))
        line = f"{name:28s} {ours[-1]:6.2f} s"
        if not arguments.ours:
            theirs = seconds(count_with_fvcore, name)
            ratios.append(theirs / ours[-1])
            line += f"   fvcore {theirs:6.2f} s   {ratios[-1]:5.1f} times"
        print(line, flush=True)
    print(f"median {statistics.median(ours):.2f} s over {len(ours)} models", end="")
    print(f"; {statistics.median(ratios):.1f} times faster than fvcore (median)" if ratios else "")
    memory = subprocess.run([sys.executable, "-c", MEMORY_SCRIPT], capture_output=True, text=True, check=True)
    print(f"vit_l16: {int(memory.stdout) / 1e6:.0f} MB above the interpreter with torch")


if __name__ == "__main__":
    main()
