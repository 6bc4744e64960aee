"""A cache of its own for every session of tests, and the real images where they are at hand."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def real_data() -> Path:
    """The folder with real images; without it the test is skipped."""
    root = os.environ.get("FAVOR_DATA")
    if not root or not (Path(root) / "cifar10-mini").is_dir():
        pytest.skip("FAVOR_DATA does not point at the real images")
    return Path(root)
