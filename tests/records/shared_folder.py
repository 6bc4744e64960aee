"""Where papers and reference figures are, which are never committed."""

import os
from pathlib import Path

import pytest


def shared_file(*parts: str) -> Path:
    """A file beside the datasets that FAVOR_DATA names, or in a folder `shared` beside the repository; else skip."""
    data = os.environ.get("FAVOR_DATA")
    folder = Path(data).parent if data else Path(__file__).parents[3] / "shared"
    file = folder.joinpath(*parts)
    if not file.exists():
        pytest.skip(f"{'/'.join(parts)} is neither beside FAVOR_DATA nor in ../shared")
    return file
