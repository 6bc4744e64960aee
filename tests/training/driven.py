"""What the fixture `driven` hands out."""

from dataclasses import dataclass
from pathlib import Path

MODELS = ("tiny_vit", "tiny_performer")


@dataclass(frozen=True)
class Driven:
    """What `driver.py` left: runs in `one` and `two` processes, and of each model a `whole` and a `killed` one."""

    out: Path
    kills: dict[str, dict[str, int]]
