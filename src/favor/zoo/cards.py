"""What a card says of a model; this module imports no torch."""

from dataclasses import dataclass
from typing import Literal

from favor.errors import RequestError
from favor.zoo.taxonomy import How, Where

Origin = Literal["own", "timm", "plugin"]
TIMM = "timm:"
"""What a name starts with that is timm's own."""
HUB = "hub:"
"""What the address of a model on the Hugging Face Hub starts with that `favor push` uploaded."""


@dataclass(frozen=True)
class ImageSizes:
    """The image sizes that a model takes: any multiple of a number, or a list."""

    default: int = 224
    multiple_of: int = 16
    at_least: int = 16
    only: tuple[int, ...] = ()
    fixed: bool | None = None
    """Of a network of timm, which states no rule: whether it is built for one size and takes no other."""

    def check(self, name: str, img_size: tuple[int, int]) -> None:
        """Refuse a size that the model cannot take."""
        for side in img_size:
            if side < 1:
                raise RequestError(
                    f"{name} cannot take an image of {img_size[0]} x {img_size[1]} px: sides are positive"
                )
            if self.only and side not in self.only:
                choices = ", ".join(str(choice) for choice in self.only)
                raise RequestError(f"{name} cannot take an image side of {side} px; it takes {choices}")
            if side % self.multiple_of or side < self.at_least:
                below = max(side // self.multiple_of, -(-self.at_least // self.multiple_of)) * self.multiple_of
                raise RequestError(
                    f"{name} cannot take an image side of {side} px: it must be a multiple of {self.multiple_of}, "
                    f"{self.at_least} at least; {below} px would do"
                )

    def __str__(self) -> str:
        if self.only:
            return ", ".join(str(choice) for choice in self.only) + " px"
        if self.fixed is not None:
            return "fixed when the model is built" if self.fixed else "not fixed"
        return f"{f'multiples of {self.multiple_of}' if self.multiple_of > 1 else 'any size'} from {self.at_least} px"


@dataclass(frozen=True)
class Card:
    """What is known of a model before it is built."""

    name: str
    family: str
    title: str
    where: Where | None
    how: How | None
    year: int | None
    paper: str | None
    """arXiv id; for the few papers that are not there, their DOI or venue."""
    origin: Origin
    complexity: str | None
    """The growth of the token mixing with the number N of tokens, as the paper claims it."""
    changes: str
    """What it changes of ViT, in one or two sentences."""
    image_sizes: ImageSizes = ImageSizes()
    notes: tuple[str, ...] = ()
    """Choices that the paper leaves open, and deviations from it or from other implementations."""
    aliases: tuple[str, ...] = ()
    idle_parameters: tuple[str, ...] = ()
    """Patterns of parameters that may rightly get no gradient from a batch, such as experts without a token."""
    graph_breaks: str | None = None
    """The operator that `torch.compile(fullgraph=True)` does not take in eval, where there is one."""

    def as_dict(self) -> dict[str, object]:
        """Plain values with stable keys, for JSON."""
        sizes = self.image_sizes
        return {
            "name": self.name,
            "family": self.family,
            "title": self.title,
            "where": self.where.key if self.where else None,
            "how": self.how.key if self.how else None,
            "year": self.year,
            "paper": self.paper,
            "origin": self.origin,
            "complexity": self.complexity,
            "changes": self.changes,
            "image_sizes": {
                "default": sizes.default,
                "multiple_of": sizes.multiple_of if sizes.fixed is None else None,
                "at_least": sizes.at_least if sizes.fixed is None else None,
                "only": list(sizes.only),
            },
            "notes": list(self.notes),
            "aliases": list(self.aliases),
            "graph_breaks": self.graph_breaks,
        }
