"""All records in one table: favor's own and those of studies."""

import subprocess
import sys
from pathlib import Path

import pytest

from favor.records import append, gather
from favor.records.schema import CardFields, Record, reading


def counted(name: str, params: float) -> Record:
    return Record(
        name=name,
        model=CardFields(),
        task="count",
        source="measured",
        metrics={"params": reading("params", params, method="test")},
    )


def test_each_study_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path / "a", [counted("mine", 1e6)])
    append(tmp_path / "b", [counted("yours", 2e6)])
    opened: list[Path] = []
    open_file = Path.open
    monkeypatch.setattr(Path, "open", lambda file, *how, **more: opened.append(file) or open_file(file, *how, **more))
    gathered = gather([tmp_path / "a", tmp_path / "b"])
    assert [file for file in opened if file.is_relative_to(tmp_path)] == [
        tmp_path / name / "records.jsonl" for name in ("a", "b")
    ]
    assert [record.name for record in gathered.own] == ["mine", "yours"]
    assert set(gathered.table["name"]) > {"mine", "yours", "vit_s16"}
    assert not {"mine", "yours"} & {record.name for record in gathered.shipped}


@pytest.mark.parametrize("call", ["favor.recommend()", "favor.pareto('top1', 'params')"])
def test_python_answers_without_the_command_line(call: str) -> None:
    script = f"import sys, favor; {call}; print([name for name in sys.modules if name.startswith('favor.cli')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
