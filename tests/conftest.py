"""What all tests start from."""

import logging
import signal
import warnings
from collections.abc import Iterator

import pytest

from fake_hub import fake_hub

__all__ = ["fake_hub"]

# A shell without job control starts what runs in its background with Ctrl-C ignored, and tests of Ctrl-C inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_device_locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that run at the same time do not wait for each other's measurements."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("locks")))


@pytest.fixture(autouse=True)
def logging_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """Undo and report what a library did to logging, so that later tests hear favor's warnings."""
    _restore_logging(f"before {request.node.nodeid}")
    yield
    _restore_logging(f"by {request.node.nodeid}")


def _restore_logging(when: str) -> None:
    changes = [f"logging.disable({logging.root.manager.disable})"] if logging.root.manager.disable else []
    logging.disable(logging.NOTSET)
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "favor"]
    for logger in [logging.root, *(logging.getLogger(name) for name in names)]:
        level = logging.WARNING if logger is logging.root else logging.NOTSET
        if (state := (logger.level, logger.disabled, logger.propagate)) != (level, False, True):
            changes.append(f"{logger.name}: level, disabled, propagate = {state}")
            logger.disabled, logger.propagate = False, True
            logger.setLevel(level)
    if changes:
        warnings.warn(f"logging was changed {when}: {'; '.join(changes)}", stacklevel=1)
