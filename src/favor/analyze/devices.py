"""The kind of a device by its name, which tells whether two devices are similar.

A name is matched by whole words: "mi300x" is a GPU, although "i3" stands in it.
"""

import re
from collections.abc import Iterable
from typing import Literal

from favor.errors import RequestError, unknown_name

Kind = Literal["cpu", "gpu", "tpu", "unknown"]

# The names that a user may ask for, each with its kind; the patterns cover their relatives.
KNOWN_DEVICES: dict[str, Kind] = {
    **dict.fromkeys(("cpu", "i9-10940x", "i9-12900h", "xeon", "epyc", "ryzen", "graviton", "apple-m1-cpu"), "cpu"),
    **dict.fromkeys(("cuda", "mps", "a100", "h100", "v100", "p100", "t4", "l4", "a10", "mi300x"), "gpu"),
    **dict.fromkeys(("rtx2080ti", "rtx3090", "rtx4090", "titan-rtx", "jetson"), "gpu"),
    **dict.fromkeys(("tpu-v2", "tpu-v3", "tpu-v4"), "tpu"),
}

_PATTERNS: tuple[tuple[Kind, str], ...] = (
    ("tpu", r"tpu(?:v\d+[a-z]*)?"),
    ("cpu", r"cpu|i[3579]|xeon|epyc|ryzen|threadripper|core|graviton\d?|neoverse|altra"),
    ("gpu", r"gpu|cuda|mps|rocm|nvidia|geforce|radeon|instinct|quadro|titan|tesla|jetson|orin"),
    ("gpu", r"(?:rtx|gtx)(?:[ -]?a?\d{4}(?:ti|super)?)?|gtx[ -]?\d{3}(?:ti)?"),
    ("gpu", r"mi\d{3}[ax]?|gb?\d{3}|[abhlpvk]\d{2,3}s?|t4g?|l4s?"),
)
_KINDS = tuple((kind, re.compile(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])")) for kind, pattern in _PATTERNS)


def device_kind(device: object) -> Kind:
    """The kind of a device by its name; an unknown one is similar to no other.

    >>> device_kind("i9-12900h"), device_kind("mi300x"), device_kind("tpu-v3"), device_kind("abacus")
    ('cpu', 'gpu', 'tpu', 'unknown')
    """
    if not isinstance(device, str):
        return "unknown"
    name = device.lower().replace("_", "-")
    if name in KNOWN_DEVICES:
        return KNOWN_DEVICES[name]
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), "unknown")


def has_place(device: str | None, recorded: Iterable[str]) -> bool:
    """Whether a device can be looked for in records of these devices: it is one of them, or its kind is known."""
    return device is None or device in recorded or device_kind(device) != "unknown"


def require_known(device: str | None, of_the_records: Iterable[str]) -> None:
    """Refuse a device that is neither in the records nor in the table of names, and suggest a close name."""
    recorded = list(dict.fromkeys(of_the_records))
    if device is None or has_place(device, recorded):
        return
    if device.endswith((".yaml", ".yml")):
        raise RequestError(
            f"{device} is a file; simulate models on its device first (`favor simulate NAME... --device {device} "
            "--study DIR`), then use --study DIR and the name in the file"
        )
    remedy = f"the records have {', '.join(recorded) or 'no device'}; `favor devices` lists the GPUs that are simulated"
    raise unknown_name("device", device, [*recorded, *KNOWN_DEVICES], remedy)
