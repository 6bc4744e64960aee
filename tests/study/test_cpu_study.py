"""The study that comes with favor: how it is made, and how it is used. Its figures are made up here."""

import importlib.util
import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from favor.cli import app
from favor.errors import RequestError
from favor.records import example, load, read
from favor.records.schema import Record, to_line
from favor.study.plan import jobs_of
from study.made_up import ENVIRONMENT, a_record, a_study
from study.test_summary import FIGURES

METRICS = ("throughput", "latency_p50", "inference_memory")
SOFTWARE = {"instructions": "AVX2", "timm": "1.0.30"}


@pytest.fixture(scope="module")
def maker():
    file = Path(__file__).parents[2] / "benchmarks" / "make_cpu_study.py"
    spec = importlib.util.spec_from_file_location("make_cpu_study", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(flags: str = "busy") -> list[Record]:
    found = []
    for job in jobs_of(a_study(names=(*FIGURES, "vit_b16"), phases=("inference", "training"))):
        metrics = dict(zip(METRICS, FIGURES.get(job.name, (3, 0.4, 5e8)), strict=True))
        own = metrics if job.phase == "inference" else None
        found.append(a_record(job, metrics=own, environment={**ENVIRONMENT, **SOFTWARE, "flags": flags}))
    return found


def test_records_are_shipped_as_those_of_another_machine_without_its_name(maker):
    for record in maker.shipped(measured()):
        assert (record.source, record.provenance) == ("imported", {"file": "example:cpu", "row": record.name})
        assert "host" not in record.environment
        assert record.environment["device_name"] == "Made-up 1"


def test_of_repeated_measurements_the_newest_success_is_shipped(maker):
    job = jobs_of(a_study(names=("vit_s16",), phases=("inference",)))[0]
    old, new = (
        a_record(job, "2026-11-16T01:00:00Z"),
        a_record(job, "2026-11-16T03:00:00Z", metrics={"throughput": 11.0}),
    )
    failed = a_record(job, "2026-11-16T04:00:00Z", metrics={}, status="failed", reason="latency: no")
    busy = a_record(job, "2026-11-16T05:00:00Z", environment={**ENVIRONMENT, "flags": "busy"})
    (kept,) = maker.shipped([new, failed, old, busy])
    assert kept.metrics["throughput"].value == 11.0
    with pytest.raises(RequestError, match="no measurements to ship"):
        maker.shipped([])


def test_the_document_compares_the_fronts_and_says_who_beats_whom(maker):
    text = maker.document(maker.shipped(measured()))
    assert "| efficientformerv2_s0 | 71.53 % | 60 img/s | yes | yes |" in text
    assert "- On the front here and in D.3: vit_ti16, efficientformerv2_s0." in text
    assert (
        "- vit_s16 is on the paper's front but not here: swin_ti is 1.08 times as fast and 0.37 points more accurate."
        in text
    )
    assert "- On the front here but not named in D.3: vit_b16, wavevit_s, swin_ti." in text
    assert "- vit_b16 is on the front here but not on the paper's." in text
    assert "| hivit_ti16 |  |  | not measured | yes |" in text
    assert "14 of 14 measurements have a [flag](protocol.md#flags):" in text
    assert "| `busy` | 14 |" in text
    assert "Inference was measured on 2026-11-16, training steps on 2026-11-16." in text
    assert "made-up-host" not in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= 200


def test_the_document_says_how_far_two_studies_agree(maker):
    first = [record for record in measured(flags="") if record.name != "vit_b16"]
    slower = {name: (0.9 * throughput, latency, memory) for name, (throughput, latency, memory) in FIGURES.items()}
    second = [
        a_record(job, "2026-11-18T01:00:00Z", metrics=dict(zip(METRICS, slower[job.name], strict=True)))
        for job in jobs_of(a_study(names=tuple(FIGURES), phases=("inference",)))
    ]
    text = maker.document(maker.shipped(first), second)
    assert "ran twice on the same kind of virtual machine, on 2026-11-18 and 2026-11-16" in text
    throughput = next(line for line in text.splitlines() if line.startswith("| Throughput |"))
    assert throughput.startswith(f"| Throughput | {len(FIGURES)} | 1.000 | +11.1% | 11.1% | 11.1% (")
    assert "Only on the front of 2026-11-18:\nnone. Only on the front of 2026-11-16: none." in text
    assert "| throughput, at least 83 % | wavevit_s | wavevit_s |" in text


def test_the_document_says_what_changes_on_another_processor(maker):
    elsewhere = maker.shipped((record for record in measured(flags="") if record.task == "inference"), maker.ELSEWHERE)
    assert {record.provenance["file"] for record in elsewhere} == {"example:cpu-avx512"}
    text = maker.document(maker.shipped(measured(flags="")), elsewhere=elsewhere)
    assert "`example:cpu-avx512`" in text
    assert f"0 of {len(elsewhere)} measurements have a [flag]" in text
    assert f"| Throughput | {len(elsewhere)} | 1.000 | +0.0% | 0.0% |" in text
    assert "| favored | AVX2 | AVX-512 |" in text


def test_a_phase_that_was_not_measured_again_says_nothing_about_agreement(maker):
    first, later = measured(), []
    for record in first:
        again = record.task == "inference"
        later.append(replace(record, time="2026-11-18T01:00:00Z") if again else record)
    text = maker.document(maker.shipped(later), maker.shipped(first))
    assert "Inference was measured on 2026-11-18, training steps on 2026-11-16." in text
    assert "ran twice on the same kind of virtual machine, on 2026-11-16 and 2026-11-18" in text
    assert "| Throughput | 7 |" in text
    assert "| Training step |" not in text


def test_a_failure_is_in_the_document(maker):
    job = jobs_of(a_study(names=("swin_s",), phases=("inference",)))[0]
    failed = a_record(job, metrics={}, environment={}, status="timeout", reason="latency: not done after 9 s")
    assert "| swin_s | inference | timeout | latency: not done after 9 s |" in maker.document(
        maker.shipped([*measured(), failed])
    )


def test_an_example_is_named_wherever_a_study_is_and_recommend_says_whose_figures_they_are(
    maker, monkeypatch, tmp_path
):
    records = maker.shipped(measured())
    (tmp_path / "cpu.jsonl").write_bytes(b"".join(to_line(record) for record in records))
    monkeypatch.setattr(example, "FOLDER", tmp_path)
    assert len(read("example:cpu").records) == len(records)
    assert set(load("example:cpu")["source"]) == {"imported"}
    asked = ["recommend", "--study", "example:cpu", "--prefer", "throughput", "--min-accuracy", "80", "--json"]
    data = json.loads(CliRunner().invoke(app, asked).stdout)
    assert data["favored"] is None  # the numbers have no intervals and are close
    best = data["undecided_between"][0]
    assert best["name"] == "swin_ti"
    assert best["metrics"]["throughput"]["source"] == "imported"
    assert any("favor measure swin_ti" in step for step in data["next_steps"])


def test_what_was_measured_on_ones_own_machine_goes_before_an_example(maker, monkeypatch, tmp_path):
    (tmp_path / "cpu.jsonl").write_bytes(b"".join(to_line(record) for record in maker.shipped(measured())))
    monkeypatch.setattr(example, "FOLDER", tmp_path)
    jobs = jobs_of(a_study(names=("vit_s16", "cvt_13"), phases=("inference",)))
    (tmp_path / "records.jsonl").write_bytes(b"".join(to_line(a_record(job)) for job in jobs))
    asked = ["recommend", "--study", "example:cpu", "--study", str(tmp_path), "--prefer", "throughput", "--json"]
    data = json.loads(CliRunner().invoke(app, asked).stdout)
    assert {one["metrics"]["throughput"]["source"] for one in data["undecided_between"]} == {"measured"}


def test_an_unknown_example_is_refused():
    with pytest.raises(RequestError, match="unknown example study 'gpu'"):
        read("example:gpu")
