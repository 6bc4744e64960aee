"""The report of a training run on a user's own images: accuracy, confusion, and the worst mistakes as pictures."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from favor.analyze.confusion import Confusion
from favor.report.page import asset, hash_of
from favor.version import __version__

LARGEST_TABLE = 25
"""Classes of the largest confusion matrix that is shown; with more, the most frequent confusions are listed."""
LISTED = 20


@dataclass(frozen=True)
class Picture:
    """An image with its class and the model's answer, as a small JPEG; `probability` is that of the answer."""

    name: str
    true: str
    predicted: str
    probability: float
    jpeg: bytes

    @property
    def source(self) -> str:
        return f"data:image/jpeg;base64,{base64.b64encode(self.jpeg).decode()}"


@dataclass(frozen=True)
class OwnImages:
    """What the report shows. `trained` says how the model was trained; `pictures` are mistakes, the worst first.

    Without mistakes, they are the right answers that the model was least sure of.
    """

    model: str
    trained: str
    data: str
    confusion: Confusion
    pictures: Sequence[Picture]
    commands: Sequence[tuple[str, str]]
    broken: Sequence[str] = ()


def own_images_page(found: OwnImages) -> str:
    """The report as one HTML file that needs no network and runs no script."""
    style = asset("page.css") + asset("own_images.css")
    environment = Environment(autoescape=True, undefined=StrictUndefined, loader=FunctionLoader(asset))
    confusion = found.confusion
    return environment.get_template(
        "own_images.html"
    ).render(
        policy=f"default-src 'none'; style-src {hash_of(style)}; img-src data:; base-uri 'none'; form-action 'none'",
        style=Markup(style),  # noqa: S704 - our own
        version=__version__,
        found=found,
        confusion=confusion,
        right=sum(row[number] for number, row in enumerate(confusion.counts)),
        has_table=len(confusion.classes) <= LARGEST_TABLE,
        listed=confusion.mistakes[:LISTED],
        shade=_shade,
    )


def _shade(count: int, row: Sequence[int]) -> int:
    """The share of a class's images in tenths, for the color of a cell.

    >>> _shade(3, (3, 1)), _shade(0, (0, 0))
    (8, 0)
    """
    return round(10 * count / sum(row)) if count else 0
