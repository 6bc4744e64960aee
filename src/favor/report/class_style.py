"""The color and marker of each class of the taxonomy, as plain data for all drawings.

Every color has a contrast of at least 3 : 1 to white and to the dark page, so both themes share the palette. Not
everybody can tell twelve colors apart, so the marker says the same as the color.
"""

from dataclasses import dataclass
from math import cos, pi, sin

from favor.zoo.taxonomy import How


@dataclass(frozen=True)
class ClassStyle:
    """A class of the taxonomy: its key and title, its color, and its marker.

    `path` is the marker as an SVG path in a box from -1 to 1: Vega takes it as a shape, and SVG draws it after scaling.
    """

    key: str
    title: str
    color: str
    shape: str
    path: str


def _polygon(*points: tuple[float, float]) -> str:
    """A closed path through points.

    >>> _polygon((0, -1), (1, 1), (-1, 1))
    'M0,-1L1,1L-1,1Z'
    """
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in points) + "Z"


def _regular(corners: int, inner: float | None = None) -> str:
    """A regular polygon with a corner at the top, or a star where there is an inner radius."""
    steps = corners if inner is None else 2 * corners
    radii = [1.0 if inner is None or not step % 2 else inner for step in range(steps)]
    turns = [2 * pi * step / steps for step in range(steps)]
    return _polygon(*((round(r * sin(t), 3), round(-r * cos(t), 3)) for r, t in zip(radii, turns, strict=True)))


_ARM = 0.36  # half the width of a cross's arms

_PATHS = {
    "circle": "M0.9,0A0.9,0.9,0,1,1,-0.9,0A0.9,0.9,0,1,1,0.9,0Z",
    "square": _polygon((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)),
    "diamond": _polygon((0, -1), (0.8, 0), (0, 1), (-0.8, 0)),
    "bar": _polygon((-1, -0.42), (1, -0.42), (1, 0.42), (-1, 0.42)),
    "triangle up": _polygon((0, -0.95), (0.95, 0.8), (-0.95, 0.8)),
    "triangle down": _polygon((0, 0.95), (0.95, -0.8), (-0.95, -0.8)),
    "triangle left": _polygon((-0.95, 0), (0.8, -0.95), (0.8, 0.95)),
    "triangle right": _polygon((0.95, 0), (-0.8, -0.95), (-0.8, 0.95)),
    "plus": _polygon(
        *((-_ARM, -1), (_ARM, -1), (_ARM, -_ARM), (1, -_ARM), (1, _ARM), (_ARM, _ARM)),
        *((_ARM, 1), (-_ARM, 1), (-_ARM, _ARM), (-1, _ARM), (-1, -_ARM), (-_ARM, -_ARM)),
    ),
    "star": _regular(5, inner=0.45),
    "hexagon": _regular(6),
    "hourglass": _polygon((-0.85, -0.95), (0.85, -0.95), (-0.85, 0.95), (0.85, 0.95)),
    "ring": "M0.6,0A0.6,0.6,0,1,1,-0.6,0A0.6,0.6,0,1,1,0.6,0Z",
}

# Colors that some eyes confuse (red, brown, gold and green; blue and violet) have markers that are far from alike.
_LOOKS = {
    How.BASELINE: ("#767c85", "circle"),
    How.LOW_RANK: ("#2276c4", "square"),
    How.SPARSE: ("#00877d", "triangle up"),
    How.FIXED: ("#8b6b3d", "bar"),
    How.KERNEL: ("#cc3a78", "diamond"),
    How.HYBRID: ("#cf5f0c", "star"),
    How.FOURIER: ("#7a5fd8", "hexagon"),
    How.SHUFFLING: ("#4d8f22", "plus"),
    How.REMOVAL: ("#d8402f", "triangle left"),
    How.MERGING: ("#a97c00", "triangle right"),
    How.SUMMARY: ("#0a8fb8", "triangle down"),
    How.MORE_MLPS: ("#ab55c2", "hourglass"),
}

CLASS_STYLES: dict[str, ClassStyle] = {
    how.key: ClassStyle(how.key, how.title, color, shape, _PATHS[shape]) for how, (color, shape) in _LOOKS.items()
}
UNKNOWN_CLASS = ClassStyle("unknown", "Class unknown", "#8a8f99", "ring", _PATHS["ring"])


def class_style(how: object) -> ClassStyle:
    """The look of a class by its key; one that is not known, as of a foreign model, has a look of its own.

    >>> class_style("kernel").title, class_style(None).title
    ('Kernel Attention', 'Class unknown')
    """
    return CLASS_STYLES.get(how, UNKNOWN_CLASS) if isinstance(how, str) else UNKNOWN_CLASS
