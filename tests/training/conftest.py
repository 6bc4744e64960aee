"""What the tests of training share."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import favor
from favor.zoo import registry
from training.driven import MODELS, Driven

PLUGIN = Path(__file__).with_name("tiny_models.py")


@pytest.fixture(scope="session")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Driven:
    """The runs of `driver.py`, made once, also where several workers of pytest share the tests."""
    own = tmp_path_factory.getbasetemp()
    out = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "driven"
    out.mkdir(exist_ok=True)
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        told = out / "kills.json"
        if not told.exists():
            command = [sys.executable, str(PLUGIN.with_name("driver.py")), str(out), "3", *MODELS]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            told.write_text(done.stdout)
    return Driven(out, json.loads(told.read_text()))


@pytest.fixture(scope="module")
def tiny_models() -> Iterator[list[str]]:
    """The plugin of tiny models, no longer than the tests of a file run: others count the models of the zoo."""
    names = favor.load_plugin(PLUGIN)
    yield names
    registry.unregister(names)
