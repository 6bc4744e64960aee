"""The commands that provide the numbers that a figure lacks."""

QUICK = "favor run --study mine"
"""Inference of one or two models of every class."""
FULL = "favor run full --study mine"
"""Inference and training step of all models of the benchmark's Table 5."""
MISNOMER = "favor run misnomer --study mine"
"""Accuracies and costs of the misnomer's experiments with small models on CIFAR-10."""
MISNOMER_IMAGENET = "favor run misnomer-imagenet --study mine"
"""Costs of the misnomer's own models, at ImageNet size."""
X_FORMERS = "favor run vix-cifar10 --study mine"
"""Accuracies and costs of the Vision X-formers on CIFAR-10."""
LAPTOP = "favor run laptop --study mine"
"""Accuracies: many families trained on CIFAR-10 for a few minutes each."""
REPORT = "favor report mine -o report.html"


def to_fill(needs: str, *commands: str) -> str:
    """What a figure needs and the commands that provide it; the last one makes the page.

    >>> to_fill("throughput", QUICK)
    'Needs throughput. Run: favor run --study mine; then: favor report mine -o report.html'
    """
    return f"Needs {needs}. Run: " + "; then: ".join([*commands, REPORT])
