"""Runtimes on the page and in a study's answer: speeds, and the models that change places."""

import math
from dataclasses import replace as with_fields

import msgspec
import pytest

from favor.analyze.rank_changes import Speed, gains, rank_changes
from favor.cli import study_text
from favor.records import CardFields, Gathered, Record, reading
from favor.records.table import table_of
from favor.report.page import page_of
from favor.report.runtimes import runtimes_finding, runtimes_sections, speeds_of
from favor.study.plan import CountJob
from favor.study.progress import JobState


def ran(
    name: str, runtime: str, speed: float, precision: str = "fp32", flags: str = "", **conditions: object
) -> Record:
    usual = {"img_size": 224, "device": "cpu", "precision": precision, "runtime": runtime}
    return Record(
        name=name,
        model=CardFields(),
        task="inference",
        source="measured",
        conditions=usual | conditions,  # type: ignore[arg-type]
        metrics={"throughput": reading("throughput", speed, 0.95 * speed, 1.05 * speed, method="made up")},
        environment={"device_name": "a processor", "threads": 2, "flags": flags},
    )


RECORDS = (
    ran("vit", "openvino", 60.0),
    ran("swin", "openvino", 44.0),
    ran("vit", "eager", 30.0),
    ran("swin", "eager", 40.0),
    ran("vit", "openvino", 90.0, "int8"),
)


def test_a_section_has_the_speeds_of_every_way_to_run_and_who_changes_places() -> None:
    (section,) = runtimes_sections(RECORDS)
    assert section.setting == "cpu, 224 px, a processor, 2 threads"
    assert section.ways == ("eager", "openvino", "openvino int8")
    assert section.speeds == (("swin", "40", "44 (1.10)", "missing"), ("vit", "30", "60 (2.00)", "90 (3.00)"))
    assert section.changes == (("eager", "openvino", "1 of 1", "1", "swin and vit"),)
    assert section.gains[0].startswith("openvino: 1.48 times the speed of eager mode (geometric mean); vit gains most")
    (fast,) = runtimes_sections([ran("vit", "eager", 9675.0), ran("vit", "openvino", 24136.0)])
    assert fast.speeds == (("vit", "9,675", "24,136 (2.49)"),)


def test_the_answer_of_a_study_names_the_models_that_change_places_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = "Between runtimes, models change places in 1 of 1 comparison, 1 beyond intervals: swin and vit between "
    assert runtimes_finding(RECORDS) == f"{told}eager and openvino"
    study_text.print_runtimes([JobState(CountJob(record.name, 224, 1000), "done", None, record) for record in RECORDS])
    assert capsys.readouterr().out.replace("\n", " ").strip() == f"{told}eager and openvino"


@pytest.mark.parametrize(
    "records",
    [
        RECORDS[:2],  # one runtime
        (RECORDS[0], ran("vit", "openvino", 90.0, "int8"), ran("swin", "openvino", 80.0, "int8")),
        (RECORDS[0], ran("swin", "eager", 40.0, img_size=384), ran("vit", "eager", 30.0, batch_size=8)),
    ],
    ids=["one runtime", "one runtime in two precisions", "several settings"],
)
def test_where_no_model_ran_in_two_runtimes_in_one_setting_there_is_no_section(records: tuple[Record, ...]) -> None:
    assert runtimes_sections(records) == ()
    assert runtimes_finding(records) is None


def test_a_busy_measurement_may_be_faster_so_it_changes_no_place_for_sure() -> None:
    busy = (*RECORDS[:2], ran("vit", "eager", 30.0, flags="busy"), RECORDS[3])
    assert speeds_of(busy)["eager"]["vit"].high == math.inf
    (section,) = runtimes_sections(busy)
    assert section.changes == (("eager", "openvino", "1 of 1", "0", ""),)
    assert section.speeds[1][1] == "30 ± ?"
    again = speeds_of([*busy, RECORDS[2]])["eager"]["vit"]
    assert (again.value, again.high) == (30.0, 31.5)


def test_a_change_of_places_needs_intervals_that_do_not_overlap_in_either_way() -> None:
    apart = {"a": Speed(12.0, 11.0, 13.0), "b": Speed(10.0, 9.0, 10.5)}
    swapped = {"a": apart["b"], "b": apart["a"]}
    near = {"a": apart["b"], "b": Speed(10.2, 9.9, 10.9)}
    (one, other, third) = rank_changes({"x": apart, "y": swapped, "z": near})
    assert (one.by_numbers, one.beyond_intervals) == (1, (("a", "b"),))
    assert (other.by_numbers, other.beyond_intervals) == (1, ())
    assert (third.by_numbers, third.pairs) == (0, 1)
    (gain, _) = gains({"x": apart, "y": swapped, "z": near}, "x")
    assert (gain.mean, gain.most, gain.least) == (pytest.approx(1.0), ("b", 1.2), ("a", 10 / 12))


def test_the_page_has_the_section_and_escapes_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("favor.report.page.drawings_of", lambda table, scope, track: [])
    records = tuple(msgspec.structs.replace(record, name=record.name.replace("vit", "<b>vit")) for record in RECORDS)
    gathered = Gathered(("here",), table_of(records), records, (), ())
    page = page_of(gathered)
    assert "Between runtimes" in page
    assert "<td>&lt;b&gt;vit and swin</td>" in page
    one_runtime = with_fields(gathered, own=records[:2], table=table_of(records[:2]))
    assert "Between runtimes" not in page_of(one_runtime)
