"""Small modules with the calls of wandb, mlflow and trackio that favor makes; they note what they are told."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

COMMON = """
import json, os
def tell(**what):
    if what["call"] in os.environ.get("FAIL", "").split():
        raise ConnectionError("the server\\nis gone")
    with open(os.environ["TOLD"], "a") as file:
        file.write(json.dumps({"tracker": __name__, **what}, default=str) + "\\n")
"""
RUN = """
class Run:
    def log(self, metrics, *, step):
        tell(call="log", metrics=metrics, step=step)
    def finish(self, exit_code=None):
        tell(call="finish", exit_code=exit_code)
"""
FAKES = {
    "wandb": RUN
    + """
def Settings(*, silent, console, finish_timeout):
    return "settings"
def init(*, project, id, name, dir, config, resume, settings):
    tell(call="init", study=project, id=id, name=name, config=config, resume=resume)
    return Run()
""",
    "trackio": RUN
    + """
def init(*, project, name, config, resume):
    print("trackio talks")
    tell(call="init", study=project, id=None, name=name, config=config, resume=resume)
    return Run()
def finish():
    tell(call="finish", exit_code=None)
""",
    "mlflow": """
from types import SimpleNamespace as Plain
class MlflowClient:
    def get_experiment_by_name(self, name):
        return None
    def create_experiment(self, name):
        tell(call="experiment", name=name)
        return name
    def search_runs(self, experiments, filter_string):
        runs = os.environ.get("KNOWN_RUN")
        return [Plain(info=Plain(run_id=runs))] if runs else []
    def update_run(self, run, *, status):
        tell(call="update", run=run, status=status)
    def create_run(self, experiment, *, run_name, tags):
        tell(call="init", study=experiment, id=tags["favor.run"], name=run_name, config={})
        return Plain(info=Plain(run_id="7"))
    def log_param(self, run, key, value):
        tell(call="param", key=key, value=value)
    def log_metric(self, run, name, value, *, step):
        tell(call="log", metrics={name: value}, step=step)
    def set_terminated(self, run, status):
        tell(call="finish", status=status)
""",
}


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[dict[str, object]]]]:
    """Modules in place of wandb, mlflow and trackio; gives what was told to them."""
    folder = tmp_path / "fakes"
    for name, source in FAKES.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(COMMON + source)
    file = tmp_path / "told.jsonl"
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("TOLD", str(file))
    for name in FAKES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield lambda: [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for name in FAKES:
        sys.modules.pop(name, None)
