"""Is our ViT as fast as timm's? Alternating runs, ViT-S, batch 8, forward and training step; wanted: at most 1.03.

python benchmarks/vit_speed.py [--rounds 31]
"""

import argparse
import statistics
import sys
import time

import timm
import torch

import favor
from zoo_speed import THREADS, forward, train_step

LIMIT = 1.03


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(THREADS)
    worst = 0.0
    for kind in (forward, train_step):
        ours = kind(favor.create_model("vit_s16"))
        theirs = kind(timm.create_model("vit_small_patch16_224", init_values=1e-4, no_embed_class=True))
        ratios = []
        for i in range(rounds + 3):
            times = []
            for call in (ours, theirs) if i % 2 else (theirs, ours):
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
            if i >= 3:
                ratios.append(times[0] / times[1] if i % 2 else times[1] / times[0])
        ratio = statistics.median(ratios)
        worst = max(worst, ratio)
        print(f"{kind.__name__}: our time / timm's = {ratio:.3f} (median of {rounds} pairs)")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
