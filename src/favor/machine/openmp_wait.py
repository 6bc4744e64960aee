"""How OpenMP's threads wait for each other: asleep, not spinning.

On a machine that other programs use, two spinning threads take ten times as long as one: each waits for the other,
which has to wait for a processor. Measurements keep the default, which is a little faster on a quiet machine.
"""

from collections.abc import MutableMapping

SPINS = {"GOMP_SPINCOUNT": "1000"}
"""libgomp's own choice if there are fewer processors than threads; it does not take other programs into account."""


def wait_asleep(environment: MutableMapping[str, str]) -> None:
    """Set the variables unless the user has; libgomp reads them when torch is imported."""
    for name, value in SPINS.items():
        if "OMP_WAIT_POLICY" not in environment:
            environment.setdefault(name, value)
