"""The store: nothing that was whole is ever lost, and nothing that was lost goes unsaid."""

import io
import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from favor.errors import RequestError, WorkError
from favor.records.schema import CardFields, Record, to_line
from favor.records.store import FILE_NAME, append, read
from records.record_strategies import a_record, records


def content_of(*some: Record) -> bytes:
    return b"".join(to_line(record) for record in some)


def write(folder: Path, content: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / FILE_NAME).write_bytes(content)
    return folder


@settings(max_examples=15, deadline=None)  # an example syncs up to five times, and a busy disk takes its time
@given(st.lists(records(), max_size=4))
def test_what_is_appended_is_read_in_the_same_order(
    tmp_path_factory: pytest.TempPathFactory, some: list[Record]
) -> None:
    study = tmp_path_factory.mktemp("study") / "new" / "folder"
    for record in some:
        assert append(study, [record]) == 1
    assert append(study, some) == len(some)
    assert read(study).records == (*some, *some)
    assert read(study).problems == ()
    assert read(study / FILE_NAME, study).records == (*some, *some) * 2


def test_a_file_cut_at_any_byte_gives_all_whole_records_and_says_what_it_skipped(tmp_path: Path) -> None:
    short = {"model": CardFields(), "conditions": {}, "environment": {}, "metrics": {}, "time": None}
    some = [a_record(name, **short) for name in ("one", "two")]
    whole = content_of(*some)
    ends = [len(content_of(*some[:count])) for count in range(3)]
    for cut in range(len(whole) + 1):
        study = write(tmp_path / "cut", whole[:cut])
        found = read(study)
        # A record is whole without its newline too.
        count = sum(end - 1 <= cut for end in ends[1:])
        assert found.records == tuple(some[:count]), cut
        torn = cut not in ends and cut + 1 not in ends
        assert [(problem.kind, problem.line) for problem in found.problems] == [("torn", count + 1)] * torn, cut


def test_a_record_is_never_glued_to_a_torn_line(tmp_path: Path) -> None:
    whole = content_of(a_record("vit_ti16"), a_record("vit_s16"))
    first = len(content_of(a_record("vit_ti16")))
    for cut in (first, first + 1, *range(first + 2, len(whole) - 2, 23), len(whole) - 2, len(whole) - 1, len(whole)):
        study = write(tmp_path / "torn", whole[:cut])
        append(study, [a_record("vit_b16")])
        assert (study / FILE_NAME).read_bytes().endswith(b"\n" + to_line(a_record("vit_b16")))
        found = read(study)
        assert [record.name for record in found.records if record.name != "vit_s16"] == ["vit_ti16", "vit_b16"]
        whole_or_reported = 0 if cut == first else 1
        assert len(found.records) + len(found.problems) == 2 + whole_or_reported
        assert all(problem.kind == "corrupt" and problem.line == 2 for problem in found.problems)


def test_a_file_concatenated_to_a_torn_one_loses_none_of_its_records(tmp_path: Path) -> None:
    one, other = content_of(a_record("vit_ti16")), content_of(a_record("resnet50"), a_record("vit_b16"))
    for cut in range(1, len(one)):
        found = read(write(tmp_path / "both", one[:cut] + other))
        whole = cut == len(one) - 1
        assert [record.name for record in found.records] == ["vit_ti16"] * whole + ["resnet50", "vit_b16"], cut
        assert [(problem.kind, problem.line) for problem in found.problems] == [("corrupt", 1)] * (not whole), cut


def test_two_machines_folders_are_merged_by_concatenation(tmp_path: Path) -> None:
    here = [a_record(environment={"host": "here"}), a_record("vit_b16")]
    there = [a_record(environment={"host": "there"})]
    append(tmp_path / "here", here)
    append(tmp_path / "there", there)
    both = (tmp_path / "here" / FILE_NAME).read_bytes() + (tmp_path / "there" / FILE_NAME).read_bytes()
    assert read(write(tmp_path / "both", both)).records == (*here, *there)
    assert read(tmp_path / "here", tmp_path / "there").records == (*here, *there)


def test_a_corrupt_line_is_reported_by_its_number_and_the_others_are_kept(tmp_path: Path) -> None:
    lines = [to_line(a_record(f"model_{number}")) for number in range(6)]
    lines[1] = b"\xff\xfe rubbish\n"
    lines[3] = lines[3].replace(b'"img/s"', b'"m/s"')
    lines[4] = b"\n"
    found = read(write(tmp_path / "study", b"".join(lines)))
    assert [record.name for record in found.records] == ["model_0", "model_2", "model_5"]
    assert [(problem.line, problem.kind) for problem in found.problems] == [(2, "corrupt"), (4, "corrupt")]
    assert "records.jsonl:4: corrupt line, skipped: metrics.throughput: stored in 'img/s'" in str(found.problems[1])


def test_a_newer_schema_is_reported_as_such(tmp_path: Path) -> None:
    newer = to_line(a_record()).replace(b'{"schema":1', b'{"schema":2')
    found = read(write(tmp_path / "study", newer + to_line(a_record())))
    assert [problem.kind for problem in found.problems] == ["newer_schema"]
    assert len(found.records) == 1


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    append(tmp_path, [a_record("one")])
    os.truncate(tmp_path / "records.jsonl", 2**36)  # a hole of 64 GiB, which takes no space on the disk
    with pytest.raises(RequestError, match=r"records.jsonl:2: a line of more than 67 MB"):
        read(tmp_path)


def test_a_path_without_records_is_refused_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="has no records.jsonl"):
        read(tmp_path)
    with pytest.raises(RequestError, match="no such file or folder"):
        read(tmp_path / "missing")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(WorkError, match="cannot write records to"):
        append(tmp_path / "file", [a_record()])


def test_a_study_may_hold_a_file_of_each_writer_and_a_line_in_two_files_counts_once(tmp_path: Path) -> None:
    append(tmp_path, [a_record("first")], writer="0002-node1")
    append(tmp_path, [a_record("second"), a_record("third")], writer="0010-node0")
    assert [record.name for record in read(tmp_path).records] == ["first", "second", "third"]
    # Gathered into one file by hand, which comes before all others: what is in it is not read again.
    gathered = (tmp_path / "records" / "0010-node0.jsonl").read_bytes()
    (tmp_path / FILE_NAME).write_bytes(gathered + to_line(a_record("fourth")) * 2)
    append(tmp_path, [a_record("third", 99.0)], writer="0010-node0")
    result = read(tmp_path)
    assert [record.name for record in result.records] == ["second", "third", "fourth", "fourth", "first", "third"]
    assert (result.records[-1].metrics["throughput"].value, result.problems) == (99.0, ())
    assert read(tmp_path / "records" / "0010-node0.jsonl").records[0] == a_record("second")


def test_what_is_written_later_is_read_later_also_after_the_files_of_a_cluster(tmp_path: Path) -> None:
    append(tmp_path, [a_record("local", 1.0)])
    append(tmp_path, [a_record("node", 2.0)], writer="0001-00003")
    append(tmp_path, [a_record("local", 3.0)])
    append(tmp_path, [a_record("local", 4.0)])
    append(tmp_path, [a_record("node", 5.0)], writer="0001-00010")
    append(tmp_path, [a_record("node", 6.0)], writer="0002-00000")
    append(tmp_path, [a_record("local", 7.0)])
    append(tmp_path, [a_record("named", 8.0)], writer="node1")
    append(tmp_path, [a_record("local", 9.0)])
    values = [record.metrics["throughput"].value for record in read(tmp_path).records]
    assert values == [float(number) for number in range(1, 10)]
    assert len(list((tmp_path / "records").iterdir())) == 7


def test_a_problem_in_a_writers_own_file_is_reported_with_that_file_and_its_line(tmp_path: Path) -> None:
    append(tmp_path, [a_record("first")])
    append(tmp_path, [a_record("first"), a_record("second")], writer="node1")
    with (tmp_path / "records" / "node1.jsonl").open("ab") as file:
        file.write(b"rubbish\n")
    assert [(Path(problem.file).name, problem.line) for problem in read(tmp_path).problems] == [("node1.jsonl", 3)]


class Growing(io.BytesIO):
    """A file to which the next part is appended whenever a reader comes to its end."""

    def __init__(self, *parts: bytes) -> None:
        super().__init__(parts[0])
        self.parts = list(parts[1:])

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line and self.parts:
            place = self.tell()
            self.seek(0, io.SEEK_END)
            self.write(self.parts.pop(0))
            self.seek(place)
        return line


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "not finished"])
def test_a_line_that_is_being_written_is_never_called_corrupt(
    tmp_path: Path, finished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = to_line(a_record("one")), to_line(a_record("other"))
    study = write(tmp_path / "study", one)
    parts = (one + other[:100], other[100:]) if finished else (one + other[:100], b"", other[100:200], other[200:])
    monkeypatch.setattr(Path, "open", lambda *_: Growing(*parts))
    result = read(study)
    assert [record.name for record in result.records] == (["one", "other"] if finished else ["one"])
    assert [problem.kind for problem in result.problems] == ([] if finished else ["torn"])


def _append_many(study: Path, name: str, count: int) -> None:
    for number in range(count):
        append(study, [a_record(name, float(number), conditions={"padding": "x" * 5000})])


def test_two_processes_append_at_once_without_mixing_their_lines(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(tmp_path, name, 150)) for name in ("one", "other")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    found = read(tmp_path)
    assert found.problems == ()
    for name in ("one", "other"):
        values = [record.metrics["throughput"].value for record in found.records if record.name == name]
        assert values == [float(number) for number in range(150)]
