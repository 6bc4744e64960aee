"""What the documents show works as it stands there."""

import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import typer.main

import favor
from equality import images, largest_difference, with_order_one_weights
from favor.cli import app
from favor.study.resolve import resolve
from favor.study.study_files import open_study
from favor.zoo import registry
from favor.zoo.registry import create_miniature

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
GUIDE = ROOT / "docs" / "adding-a-model.md"
MODELS = ["crossmean_ti16", "crossmean_s16", "crossmean_b16", "crossmean_xs4"]


def shown(language: str) -> str:
    """The first block of a language that the guide shows."""
    block = re.search(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert block
    return block.group(1)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the guide's files are, which are loaded; its models are gone afterwards."""
    (tmp_path / "crossmean.py").write_text(shown("python"))
    (tmp_path / "mine.yaml").write_text(shown("yaml"))
    try:
        assert favor.load_plugin(tmp_path / "crossmean.py") == MODELS
        yield tmp_path
    finally:
        registry.unregister(favor.list_models("crossmean_*"))


@pytest.mark.usefixtures("folder")
def test_the_example_of_the_guide_is_a_working_model() -> None:
    model = with_order_one_weights(create_miniature("crossmean_s16")).eval()
    x = images(1, 3, 64, 64)
    with torch.no_grad():
        assert model(x).shape == (1, 10)
        # rows and columns matter: the image turned by 90 degrees is another one
        assert largest_difference(model(x), model(x.rot90(1, (2, 3)))) > 1e-2


def test_the_guide_s_study_compares_the_example_with_others_of_its_size(folder: Path) -> None:
    study = resolve(*open_study(str(folder / "mine.yaml")))
    assert [model.name for model in study.models][:2] == ["crossmean_xs4", "vit_xs4"]
    assert {model.img_sizes for model in study.models} == {(32,)}
    ours, vit = (favor.create_model(name, num_classes=10) for name in ("crossmean_xs4", "vit_xs4"))
    assert ours.tokens == vit.tokens
    assert ours.blocks[0].mlp.fc1.weight.shape == vit.blocks[0].mlp.fc1.weight.shape


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)", page.read_text()):
        linked = page.parent / target if target else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            broken.append(f"{target}#{anchor}")
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    assert broken_links(page) == []


def test_a_link_to_a_missing_page_or_heading_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`: three\n[a](#one-two-three) [b](#four) [c](other.md) [d](https://example.org)")
    assert broken_links(page) == ["#four", "other.md#"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    packages = "|".join(folder.name for folder in (ROOT / "src" / "favor").iterdir() if folder.is_dir())
    named = re.findall(rf"`((?:src|tests|benchmarks|docs|favor|{packages})/[\w./-]*)`", page.read_text())
    places = (ROOT, ROOT / "src", ROOT / "src" / "favor")
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_names_that_are_shown_can_be_imported(page: Path) -> None:
    named = re.findall(r"`(favor(?:\.\w+)+)", page.read_text())
    assert [name for name in named if not importable(name)] == []


def importable(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_a_python_name_that_does_not_exist_is_found() -> None:
    assert importable("favor.zoo.registry.card")
    assert not importable("favor.zoo.registry.no_such_function")


def commands() -> list[tuple[str, str]]:
    """Each command in a code block below docs; what explains it comes after a `#` or two spaces."""
    shown = []
    for page in sorted(ROOT.glob("docs/*.md")):
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
            lines = re.findall(r"^(?:\$ )?favor (?:--plugin \S+ )?([a-z]\S*(?: ?\S+)*)", block, re.MULTILINE)
            shown += [(page.name, line) for line in lines if language in ("", "console")]
    return shown


@pytest.mark.parametrize(("page", "line"), commands(), ids=lambda text: text)
def test_every_command_that_is_shown_is_understood(page: str, line: str) -> None:
    words = shlex.split(re.sub(r"\[.*?\]", "", line), comments=True)
    command = typer.main.get_command(app).get_command(None, words[0])
    assert command is not None, f"{page} shows favor {words[0]}, which does not exist"
    command.make_context(words[0], words[1:])


def test_most_pages_show_commands() -> None:
    assert len({page for page, _ in commands()}) > 5
