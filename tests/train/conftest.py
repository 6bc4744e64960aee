"""What the tests of training share."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import favor
from favor.zoo import registry
from train.driven import MODELS, Driven

PLUGIN = Path(__file__).with_name("tiny_models.py")


@pytest.fixture(scope="session")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Driven:
    out = tmp_path_factory.mktemp("driven")
    command = [sys.executable, str(PLUGIN.with_name("driver.py")), str(out), "3", *MODELS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Driven(out, json.loads(done.stdout))


@pytest.fixture(scope="session")
def tiny_models() -> Iterator[list[str]]:
    """The plugin of tiny models, for as long as tests of this folder run."""
    names = favor.load_plugin(PLUGIN)
    yield names
    registry._forget(names)
    registry._plugins.pop(PLUGIN.resolve())
