"""Where favor keeps what it can make or download again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """favor's cache folder: $XDG_CACHE_HOME/favor, or ~/.cache/favor."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "favor"  # noqa: PTH111 - no error without a home
