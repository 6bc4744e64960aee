"""The shipped index of cards: equal to the cards in the source, or not used."""

import subprocess
import sys
from pathlib import Path

import pytest

from favor.zoo import registry
from favor.zoo.index import read_index, source_digest, write_index

REMEDY = "src/favor/zoo has changed; run `make cards` (python benchmarks/make_cards.py) and commit the index"

WITHOUT_TORCH = """
import sys, favor
assert favor.card("ViT-S/16").name == "vit_s16"
assert "linformer_s16" in favor.list_models(how="low_rank")
sys.exit("torch" in sys.modules or "timm" in sys.modules)
"""


def test_the_index_is_that_of_the_present_source() -> None:
    shipped = read_index()
    assert shipped is not None, REMEDY
    assert shipped == {card.name: card for card in registry.package_cards()}, REMEDY


def test_cards_and_names_need_no_torch() -> None:
    assert read_index() is not None, REMEDY
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_changed_a_new_and_a_renamed_file_change_the_digest(tmp_path: Path) -> None:
    file = tmp_path / "vit.py"
    file.write_text("a = 1\n")
    digests = [source_digest(tmp_path)]
    file.write_text("a = 2\n")
    digests.append(source_digest(tmp_path))
    (tmp_path / "new.py").touch()
    digests.append(source_digest(tmp_path))
    (tmp_path / "new.py").rename(tmp_path / "other.py")
    digests.append(source_digest(tmp_path))
    assert len(set(digests)) == 4


def test_line_endings_do_not_change_the_digest(tmp_path: Path) -> None:
    (tmp_path / "vit.py").write_bytes(b"a = 1\nb = 2\n")
    unix = source_digest(tmp_path)
    (tmp_path / "vit.py").write_bytes(b"a = 1\r\nb = 2\r\n")
    assert source_digest(tmp_path) == unix


@pytest.mark.parametrize("content", ["", "<<<<<<< ours\n", '{"source": "of yesterday", "cards": []}'])
def test_an_index_of_another_source_is_not_used(tmp_path: Path, content: str) -> None:
    (tmp_path / "index.json").write_text(content)
    assert read_index(tmp_path / "index.json") is None
    assert read_index(tmp_path / "missing.json") is None


def test_without_an_index_the_zoo_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    names = set(registry.list_models())
    monkeypatch.setattr(registry, "read_index", lambda: None)
    registry.shipped_index.cache_clear()
    try:
        assert set(registry.list_models()) == names
        assert registry.card("ViT-S/16").name == "vit_s16"
    finally:
        registry.shipped_index.cache_clear()


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    cards = registry.package_cards()
    write_index(cards, tmp_path / "index.json")
    assert list((read_index(tmp_path / "index.json") or {}).values()) == cards
