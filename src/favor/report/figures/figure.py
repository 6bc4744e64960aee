"""What a figure is: a chart with its place in a paper and its caption, or what to run to fill it."""

from dataclasses import dataclass

import altair as alt

BENCHMARK = "Which Transformer to Favor"
MISNOMER = "The Efficiency Misnomer"
X_FORMERS = "Hybrid X-formers for Vision"


@dataclass(frozen=True)
class Figure:
    """A paper's figure from the reader's data; either `chart` or `missing`, the command that fills it, is there.

    A chart has no `config`: `theme` gives one for light and for dark pages. One plot is as wide as its container; a
    figure of several plots is a `concat` of one column; with more room, its `columns` may be raised.
    """

    id: str
    group: str
    source: str
    title: str
    caption: str
    chart: alt.TopLevelMixin | None
    missing: str | None

    def __post_init__(self) -> None:
        if (self.chart is None) == (self.missing is None):
            raise ValueError(f"{self.id}: a figure has either a chart or says what fills it")
