"""What all tests start from."""

import signal

import pytest

from fake_hub import fake_hub
from fake_trackers import told

__all__ = ["fake_hub", "told"]

# A shell without job control starts what runs in its background with Ctrl-C ignored, and tests of Ctrl-C inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_device_locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that run at the same time do not wait for each other's measurements."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("locks")))
