"""Pages to look at, made once, and a browser to look at them with."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import pytest

from favor.metrics import METRICS
from favor.records import Gathered, counted_table, published_table, read
from favor.records.table import load
from favor.report import page
from favor.report.figure_specs import Drawing, packed, specification, specification_json
from favor.report.figures.commands import to_fill
from report.made_up import HOSTILE_NAME, hostile, many_models, measured_zoo

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
)


_FILL = to_fill("throughput", "favor measure vit_s16 --study mine").replace(" -o report.html", "")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="session")
def decision_table(folder: Path) -> pd.DataFrame:
    """Half of the benchmark's models with accuracies and counts, and made-up figures of two machines and a device."""
    published, counted, own = published_table(), counted_table(), load(measured_zoo(folder / "zoo"))
    trained = published[published["pipeline"].isin(["wtf-deit3", "original"]) & published["top1"].notna()]
    trained = trained[trained["dataset"].isin(["imagenet-1k", "cars"])]
    names = sorted(set(trained["name"]))[::2]
    table = pd.concat([part[part["name"].isin(names)] for part in (trained, counted, own)], ignore_index=True)
    # Assembling takes a time for every metric, so only those stay that a recommendation can ask for.
    asked = ("top1", "params", "macs_matmul", "throughput", "latency_p50", "inference_memory", "train_step_time")
    asked += ("latency_p99", "memory_process")
    others = [name for name in METRICS if name not in asked]
    table = table.drop(columns=[name + end for name in others for end in ("", "_low", "_high")], errors="ignore")
    return table.dropna(axis="columns", how="all")


@pytest.fixture(scope="session")
def decision_page(folder: Path, decision_table: pd.DataFrame) -> Path:
    return _written(folder / "decision.html", Gathered(("my study",), decision_table, (), (), ()), [])


@pytest.fixture(scope="session")
def large_page(folder: Path) -> Path:
    """2,000 made-up models."""
    return _written(folder / "large.html", _alone(many_models(folder / "many", 2000)), [])


@pytest.fixture(scope="session")
def hostile_page(folder: Path) -> Path:
    """Records whose texts try to become markup, with a chart that has one of them as its data."""
    points = pd.DataFrame({"name": [HOSTILE_NAME, "__proto__"], "x": [1.0, 2.0], "y": [3.0, 4.0]})
    chart = alt.Chart(points).mark_point().encode(x="x:Q", y="y:Q", color="name:N", tooltip=["name:N", "x:Q"])
    spec = packed(specification_json(specification(chart.properties(width="container"))))
    drawing = Drawing("hostile", "Figure 0", HOSTILE_NAME, HOSTILE_NAME, spec, None)
    missing = Drawing("missing", "Figure 9", "A figure without data", "", None, _FILL)
    return _written(folder / "hostile.html", _alone(hostile(folder / "hostile")), [("A group", [drawing, missing])])


@pytest.fixture(scope="session")
def published_page(folder: Path) -> Path:
    """The whole page of the records that come with favor, figures and all."""
    from favor.report import write_report

    write_report([], folder / "published.html")
    return folder / "published.html"


def _alone(study: Path) -> Gathered:
    """A study without what comes with favor, which takes longer to assemble than to test."""
    return Gathered((str(study),), load(study), read(study).records, (), ())


def _written(file: Path, gathered: Gathered, figures: list[tuple[str, list[Drawing]]]) -> Path:
    """A page with figures of our own: the papers' take longer than all the rest, and have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "drawings_of", lambda table, scope, track: figures)
        file.write_text(page.page_of(gathered), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        if os.environ.get("FAVOR_BROWSER_REQUIRED"):
            pytest.fail("FAVOR_BROWSER_REQUIRED is set, but there is no chromium on this machine")
        pytest.skip("no chromium on this machine: apt install chromium")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page from disk with the network off; whatever the page complains about fails the test."""
    complaints: list[str] = []
    contexts = []

    def opened(
        file: Path,
        fragment: str = "",
        *,
        width: int = 1280,
        height: int = 900,
        theme: str = "light",
        touch: bool = False,
    ) -> Any:
        screen = {"width": width, "height": height}
        context = browser.new_context(viewport=screen, color_scheme=theme, has_touch=touch, offline=True)
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        tab.on("request", lambda request: request.url.startswith(("file:", "blob:")) or complaints.append(request.url))
        tab.goto(file.as_uri() + (f"#{fragment}" if fragment else ""))
        tab.wait_for_selector("html[data-ready]", state="attached", timeout=30_000)
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
