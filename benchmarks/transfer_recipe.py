"""Learning rate and layer decay of the recipe `transfer`, on a folder of images that has `train/` and `val/`.

    python benchmarks/transfer_recipe.py vit_s16 folder:photos --study transfer-study
    python benchmarks/transfer_recipe.py timm:tf_efficientnet_lite0 folder:photos --study transfer-study --img-size 128

Each setting is a fine-tuning from the model's published weights, without early stop. The table has the best epoch of
each. The first setting is the recipe's own. Needs a quiet machine only for the speed.
"""

import argparse
from pathlib import Path

from favor.analyze.intervals import accuracy_interval
from favor.data.opening import open_data
from favor.records.store import read
from favor.training.preprocessing import recipe_keys_for
from favor.training.recipe import load_recipe
from favor.training.request import TrainingRequest
from favor.training.run import train
from favor.training.transfer_recipe import TRANSFER, fitted_to
from favor.zoo.checkpoints import checkpoint
from favor.zoo.registry import card

SETTINGS = (("3e-4", "0.75"), ("1e-4", "0.75"), ("1e-3", "0.75"), ("3e-3", "0.75"), ("3e-4", "1"), ("1e-3", "1"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", help="folder:PATH")
    parser.add_argument("--study", type=Path, required=True)
    parser.add_argument("--img-size", type=int)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    model = card(options.model).name
    weights = checkpoint(model, img_size=options.img_size)
    images = len(open_data(options.data).train)
    print("| lr | layer decay | epoch | top-1 | 95 % interval | loss | lowest loss |\n|---|---|--:|--:|--:|--:|--:|")
    for lr, decay in SETTINGS:
        given = [f"lr={lr}", f"layer_decay={decay}", f"epochs={options.epochs}", f"patience={options.epochs}"]
        keys = recipe_keys_for(weights, options.img_size)
        recipe = load_recipe(TRANSFER, [*given, *keys, *fitted_to(images, given)])
        study = options.study / f"lr{lr}-decay{decay}"
        start = Path(f"timm:{weights.name}")
        if train(TrainingRequest(model, recipe, options.data, study, init=start, resume=True)).stopped_by:
            return
        epochs = [record for record in read(study).records if record.status == "ok"]
        best = max(epochs, key=lambda one: (one.metrics["top1"].value, -one.metrics["loss"].value))
        top1, loss = best.metrics["top1"].value, best.metrics["loss"].value
        low, high = accuracy_interval(top1, int(best.environment["evaluation_images"]))
        lowest = min(one.metrics["loss"].value for one in epochs)
        row = (lr, decay, best.conditions["epochs"], f"{top1:.1f} %", f"{low:.1f} to {high:.1f} %")
        print("|", " | ".join(map(str, (*row, f"{loss:.3f}", f"{lowest:.3f}"))), "|", flush=True)


if __name__ == "__main__":
    main()
