"""The page as a file: it needs nothing, it holds what the records hold, and no record can become part of it."""

import base64
import errno
import gzip
import hashlib
import html
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import altair as alt
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner, Result

from favor.analyze import Comparison, Limit, Request, Scope, front_of
from favor.analyze.comparison import RunSettings
from favor.analyze.guide import GuideEntry
from favor.analyze.ranking import rank
from favor.cli import report as commands
from favor.records import Gathered, gather, published_table
from favor.records.published import pareto_optimal
from favor.records.schema import CardFields, Record, reading
from favor.records.store import read
from favor.records.table import load, table_of
from favor.report.columns import Texts, column
from favor.report.data import as_json, escaped, page_data
from favor.report.effects import effect_tables
from favor.report.figure_specs import specification, specification_json
from favor.report.figures import all_figures
from favor.report.method import method_of
from favor.report.page import page_of
from favor.report.progress import Item, Track
from favor.report.questions import LIMITS, questions_of
from favor.report.study_answer import StudyAnswer
from favor.report.views import views_of
from report.made_up import HOSTILE_NAME, hostile

MEGABYTE = 1e6


def run(*words: object) -> Result:
    app = typer.Typer()
    commands.add_commands(app)
    return CliRunner().invoke(app, [str(word) for word in words])


def data_of(file: Path) -> dict:  # type: ignore[type-arg]
    text = file.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_names_no_other_file_and_no_address(hostile_page: Path) -> None:
    reader = Elements()
    reader.feed(hostile_page.read_text(encoding="utf-8"))
    assert {"script", "style", "svg", "table"} <= reader.tags
    assert not reader.tags & {"img", "link", "iframe", "object", "embed", "base", "audio", "video", "b"}
    assert not reader.names & {"src", "srcset", "action", "style", "onload", "onerror", "onclick"}
    assert all(target.startswith("#") for target in reader.targets)
    assert not re.search(r"@import|url\(", reader.style)


def test_whoever_waits_for_the_page_sees_how_far_it_is(tmp_path: Path) -> None:
    study, seen = hostile(tmp_path / "study"), Counter[str]()

    def counted(items: Sequence[Item], what: str) -> Iterator[Item]:
        for item in items:
            seen[what] += 1
            yield item

    followed = page_of(gathered := Gathered((str(study),), load(study), read(study).records, (), ()), track=counted)
    assert followed == page_of(gathered)
    assert list(seen) == ["figures", "settings", "questions"]
    assert seen["figures"] == len(all_figures(gathered.table))


class Elements(HTMLParser):
    """The elements of a page: their tags, the names of their attributes, the targets of links, the style sheet."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.targets: list[str] = []
        self.style = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        self.targets += [value or "" for name, value in attrs if name == "href"]

    def handle_data(self, data: str) -> None:
        if self.lasttag == "style":
            self.style += data


def test_the_policy_lets_run_exactly_the_scripts_of_the_page(hostile_page: Path) -> None:
    text = hostile_page.read_text(encoding="utf-8")
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert found is not None
    policy = html.unescape(found[1])
    allowed = set(re.findall(r"'sha256-([^']*)'", policy.split("script-src")[1].split(";")[0]))
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    packed = re.search(r'id="vega">(.*?)</script>', text)
    assert packed is not None
    vega = gzip.decompress(base64.b64decode(packed[1]))
    assert len(script) == 1
    assert allowed == {_hash(script[0].encode()), _hash(vega)}
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def _hash(content: bytes) -> str:
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


def test_no_text_of_a_record_stands_in_the_page_as_markup(hostile_page: Path) -> None:
    text = hostile_page.read_text(encoding="utf-8")
    assert HOSTILE_NAME not in text
    assert "<img" not in text
    assert text.count("<script") == text.count("</script>")
    assert "\u2028" not in "".join(re.findall(r"<script.*?</script>", text, re.DOTALL))


def test_the_data_holds_hostile_names_as_they_are(hostile_page: Path) -> None:
    names = data_of(hostile_page)["models"]["name"]
    assert {HOSTILE_NAME, "__proto__", "constructor", "a\u2028b"} <= set(names)


def test_escaped_json_reads_the_same_and_cannot_end_its_element() -> None:
    content = {"</script>": ["<!--", "&amp;", "\u2028\u2029", 1.5, None]}
    assert json.loads(escaped(content)) == content
    assert not set(escaped(content)) & set("<>&\u2028\u2029")


def test_a_page_of_two_thousand_models_leaves_two_thirds_of_its_three_megabytes_to_the_figures(
    large_page: Path,
) -> None:
    assert len(data_of(large_page)["models"]["name"]) == 2000
    assert large_page.stat().st_size < 1 * MEGABYTE


def test_every_number_of_the_page_is_the_one_that_was_assembled(
    decision_page: Path, decision_table: pd.DataFrame
) -> None:
    data = data_of(decision_page)
    own = decision_table[(decision_table["source"] == "measured") & decision_table["latency_p50"].notna()]
    desk = own[own["machine"].str.contains("host desk")].set_index("name")["latency_p50"]
    setting = next(view for view in data["settings"] if "host desk" in view["text"])
    shown = setting["columns"]["latency_p50"]["value"]
    found = {name: value for name, value in zip(data["models"]["name"], shown, strict=True) if value is not None}
    assert found == desk.to_dict()
    assert len(found) > 8


def test_a_column_keeps_values_exactly_and_intervals_to_six_digits() -> None:
    rows = pd.DataFrame(
        {"top1": [82.123456789, None], "top1_low": [81.987654321, None], "top1_source": ["measured", None]}
    )
    made = column(rows, "top1", Texts())
    assert made is not None
    assert (made.value, made.low, made.source) == ([82.123456789, None], [81.9877, None], 0)


@pytest.mark.parametrize(
    ("wish", "limits"),
    [
        *((wish, ()) for wish in ("throughput", "energy", "training-time")),
        *((wish, ("max_latency",)) for wish in (None, "memory")),
        ("params", ("max_memory", "max_latency")),
        ("throughput", ("max_memory", "max_latency", "max_p99", "max_process_memory")),
        ("training-time", ("max_process_memory",)),
    ],
)
def test_what_decides_a_question_is_what_decides_the_command(
    decision_table: pd.DataFrame, decision_page: Path, wish: str | None, limits: tuple[str, ...]
) -> None:
    data = data_of(decision_page)
    questions = data["questions"]
    view = next(place for place, one in enumerate(data["accuracies"]) if one["dataset"] == "imagenet-1k")
    bits = sum(2**bit for bit, option in enumerate(questions["running"]) if option in limits)
    deciding = questions["deciding"][questions["by_view"][str(view)][0][questions["wishes"].index(wish)][bits]]
    asked = tuple(Limit(option, LIMITS[option][0], "max", 1.0) for option in limits)
    fronts = [GuideEntry(e.constraint, e.phase, e.how, e.family, e.title, e.img_size) for e in pareto_optimal()]
    request = Request(wish, asked)
    ranking = rank(Comparison(decision_table, request.scope), request, fronts)
    setting = None if deciding["setting"] is None else data["settings"][deciding["setting"]]["text"]
    assert setting == (str(ranking.setting) if ranking.setting else None)
    assert (deciding["objective"], deciding["ranked_by"]) == (ranking.objective, ranking.ranked_by)
    assert deciding["undecided"] == ranking.undecided
    if deciding["front"] is not None:
        assert {data["models"]["name"][place] for place in deciding["front"]} == set(ranking.rows["name"])


def test_run_settings_are_looked_up_once_for_all_questions_on_a_data_set(
    decision_table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = []
    made = RunSettings.__init__
    monkeypatch.setattr(RunSettings, "__init__", lambda self, table: (looked_up.append(1), made(self, table))[1])
    texts = Texts()
    views = views_of(decision_table, texts)
    looked_up.clear()
    questions = questions_of(decision_table, views, texts)
    assert len(looked_up) == len(questions.by_view) > 1


def test_a_chart_without_a_number_is_still_json() -> None:
    chart = alt.Chart(alt.Data(values=[{"x": math.nan, "y": [1.0, math.inf]}])).mark_point()
    assert json.loads(specification_json(specification(chart)))["data"] == {"values": [{"x": None, "y": [1.0, None]}]}
    assert "config" not in specification(chart)


def test_the_method_names_machines_failures_with_reasons_and_sources(tmp_path: Path) -> None:
    method = method_of(gather([hostile(tmp_path / "study")]))
    assert [machine.title for machine in method.environments] == ["a processor, host desk, 2 threads, torch 2.15.0"]
    assert method.failures[0].reason == HOSTILE_NAME
    assert {origin.source for origin in method.origins} == {"measured", "published"}
    throughput = next(one for one in method.protocols if one.metric.name == "throughput")
    assert (HOSTILE_NAME, 5) in throughput.methods


def measured(name: str, **told: object) -> Record:
    usual = {"task": "inference", "source": "measured", "conditions": {}}
    return Record(name=name, model=CardFields(), **(usual | told))  # type: ignore[arg-type]


def own(*records: Record) -> Gathered:
    return Gathered(("mine",), pd.DataFrame(), records, (), ())


def test_what_an_environment_tells_has_its_unit_and_says_which_records_are_flagged() -> None:
    told = {"device_name": "a processor", "device_memory": 2**34, "budget": 2.5, "others_during": 0.25}
    flagged = [
        measured(name, environment=told | {"flags": flags}) for name, flags in (("a", "busy wide"), ("b", "busy"))
    ]
    facts = dict(method_of(own(*flagged)).environments[0].facts)
    assert facts["device memory"] == "16.0 GiB"
    assert facts["budget per measurement"] == "2.50 s"
    assert facts["used by other programs during"] == "0.25 processors"
    assert facts["flags"] == "busy on 2 records, wide on 1"


def test_methods_that_differ_in_numbers_alone_are_told_once() -> None:
    methods = ("21 calls, float32", "9 calls, float32", "9 calls, float16")
    made = [measured(f"m{at}", metrics={"macs": reading("macs", 1.0, method=way)}) for at, way in enumerate(methods)]
    protocol = method_of(own(*made)).protocols[0]
    assert protocol.methods == (("9 to 21 calls, float32", 2), ("9 calls, float16", 1))


def test_the_page_shows_the_command_that_gives_the_same_answer(decision_page: Path) -> None:
    assert data_of(decision_page)["command"] == "favor recommend --study 'my study'"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Gathered]:
    """What the command makes pages of, which are not made."""
    gathered: list[Gathered] = []
    monkeypatch.setattr(
        "favor.report.page.page_of", lambda one, scope, track, answer: gathered.append(one) or "<!doctype html>"
    )
    return gathered


def test_the_command_without_a_study_says_that_it_has_none(tmp_path: Path, shown: list[Gathered]) -> None:
    done = run("report", "-o", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert "no study given" in done.stderr
    assert done.stdout == ""
    assert (tmp_path / "page.html").read_text() == "<!doctype html>"
    assert set(shown[0].table["source"]) == {"published", "measured"}


def test_a_line_that_cannot_be_read_is_told_on_stderr_and_on_the_page(tmp_path: Path, shown: list[Gathered]) -> None:
    study = hostile(tmp_path / "study")
    with (study / "records.jsonl").open("a") as file:
        file.write("not JSON\n")
    done = run("report", study, "-o", tmp_path / "page.html")
    assert "corrupt line, skipped" in done.stderr
    assert "corrupt line, skipped" in method_of(shown[0]).unreadable[0]


def test_a_study_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run("report", tmp_path / "nowhere")
    assert done.exit_code != 0
    assert "no records at" in str(done.exception)
    assert not (tmp_path / "report.html").exists()


def test_the_figures_command_hands_the_table_the_folder_and_the_format_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def export(table: pd.DataFrame, folder: Path, file_format: str, scope: Scope, track: Track) -> list[Path]:
        given.append((len(table), folder, file_format))
        return [folder / "one.svg"]

    monkeypatch.setattr("favor.report.figures.export", export)
    done = run("figures", "-o", tmp_path, "--format", "svg")
    assert done.exit_code == 0, done.output
    assert given[0][0] > 500
    assert given[0][1:] == (tmp_path, "svg")
    assert "1 figures" in done.stderr


@pytest.mark.parametrize("target", ["missing/page.html", "."])
def test_a_target_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.setattr("favor.records.gather", lambda studies: pytest.fail("the records were read"))
    done = run("report", "-o", tmp_path / target)
    assert done.exit_code != 0
    assert str(done.exception).startswith("cannot write ")


def test_a_read_only_target_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "touch", refuse)
    monkeypatch.setattr("favor.records.gather", lambda studies: pytest.fail("the records were read"))
    done = run("report", "-o", tmp_path / "page.html")
    assert str(done.exception) == f"cannot write {tmp_path / 'page.html'}: Read-only file system"


def test_a_column_carries_the_flags_of_its_measurements() -> None:
    rows = pd.DataFrame({"throughput": [1.0, 2.0, None], "throughput_flags": ["busy throughput:wide", None, "busy"]})
    texts = Texts()
    made = column(rows, "throughput", texts)
    assert made is not None
    assert made.flags == [0, None, None]
    assert list(texts.known) == ["busy throughput:wide"]


def test_a_column_tells_what_models_that_took_turns_share() -> None:
    rounds = ["1 2 1 3 1 2 1 2", "2 4 2 6 2 4 2 4", None]
    rows = pd.DataFrame({"throughput": [1.0, 2.0, 3.0], "throughput_rounds": rounds})
    made = column(rows.assign(throughput_stretch=["first", "first", None]), "throughput", Texts())
    assert made is not None
    assert (made.shared, made.stretch) == ([1, 1, 0], [0, 0, None])


def trained(pipeline: str, count: int, source: str = "imported") -> list[Record]:
    return [
        measured(
            f"net{at}",
            source=source,
            task="accuracy",
            conditions={"dataset": "imagenet-1k", "pipeline": pipeline, "img_size": 224},
            metrics={"top1": reading("top1", 70.0 + at / 4, method="made up")},
        )
        for at in range(count)
    ]


def test_every_large_pipeline_can_be_asked_about() -> None:
    table = table_of([*trained("wtf-deit3", 6), *trained("timm:a", 7), *trained("timm:few", 2)])
    texts = Texts()
    views = views_of(table, texts)
    assert [(view.pipeline, view.scope.any_pipeline) for view in views.accuracies] == [
        *((None, False), ("timm:a", False), (None, True)),
    ]
    assert set(questions_of(table, views, texts).by_view) == {0, 1}


def test_a_view_tells_how_many_epochs_trainings_reached_that_end_after_some_minutes() -> None:
    conditions = {"dataset": "digits", "pipeline": "p", "img_size": 32, "minutes": 5.0, "final": True}
    records = [
        measured(
            f"net{epochs}",
            task="accuracy",
            conditions={**conditions, "epochs": epochs},
            metrics={"top1": reading("top1", 70.0, method="made up")},
        )
        for epochs in (1, 2)
    ]
    (view,) = views_of(table_of(records), Texts()).accuracies
    assert view.lengths == [(1.0, 1.0), (2.0, 2.0)]
    (view, *_) = views_of(table_of(trained("wtf-deit3", 6)), Texts()).accuracies
    assert view.lengths is None


def test_a_view_tells_the_epochs_of_all_trainings_if_one_is_unfinished() -> None:
    planned = {"dataset": "digits", "pipeline": "p", "img_size": 32, "recipe.epochs": 9}
    records = [
        measured(
            f"net{epochs}",
            task="accuracy",
            conditions={**planned, "epochs": epochs, "final": epochs == 9},
            metrics={"top1": reading("top1", 70.0, method="made up")},
        )
        for epochs in (3, 9)
    ]
    for unfinished, lengths, remedy in (
        (True, [(3.0, 3.0), (9.0, 9.0)], "leave out --unfinished"),
        (False, None, "train with --epochs"),
    ):
        gathered = replace(own(*records), table=table_of(records))
        data = json.loads(as_json(page_data(gathered, Scope(unfinished=unfinished))))
        (view,) = data["accuracies"]
        assert view["lengths"] == (lengths and [list(ends) for ends in lengths])
        assert view["remedy"] == remedy


def test_the_page_opens_with_all_pipelines_where_the_deciding_one_has_few_models() -> None:
    for others, opened in ((40, 2), (9, 0)):
        gathered = own(*trained("wtf-deit3", 6), *trained("timm:a", others))
        data = page_data(replace(gathered, table=table_of(gathered.own)))
        assert data.opening.accuracy == opened
        assert data.opening.dataset == 0


def test_the_page_opens_on_the_readers_own_machine_not_on_a_simulated_one() -> None:
    def ran(device: str, source: str, count: int) -> list[Record]:
        conditions = {"img_size": 224, "num_classes": 1000, "device": device, "precision": "fp32"}
        metrics = {"throughput": reading("throughput", 50.0, method="made up")}
        return [measured(f"net{at}", source=source, conditions=conditions, metrics=metrics) for at in range(count)]

    gathered = own(*trained("wtf-deit3", 6), *ran("a100", "simulated", 6), *ran("cpu", "measured", 2))
    data = page_data(replace(gathered, table=table_of(gathered.own)))
    assert data.views.settings[data.opening.setting].setting.device == "cpu"
    assert data.opening.x == "throughput"


def test_the_page_opens_with_the_readers_own_trainings_and_in_the_setting_of_favor_pareto() -> None:
    def ran(count: int, **conditions: str) -> list[Record]:
        conditions = {"img_size": 224, "num_classes": 1000, "device": "cpu"} | conditions
        metrics = {"throughput": reading("throughput", 50.0, method="made up")}
        return [measured(f"net{at}", conditions=conditions, metrics=metrics) for at in range(count)]

    accuracies = [*trained("mine", 3, "measured"), *trained("wtf-deit3", 40, "published")]
    gathered = own(*accuracies, *ran(6, precision="int8", runtime="openvino"), *ran(3, precision="fp32"))
    table = table_of(gathered.own)
    data = page_data(replace(gathered, table=table))
    front = front_of(table, ["top1", "throughput"], Scope("imagenet-1k"))
    view = data.views.accuracies[data.opening.accuracy]
    assert (view.scope.any_pipeline, view.basis) == (False, front.comparison.basis)
    assert data.views.settings[data.opening.setting].setting == front.run
    assert data.opening.x == "throughput"


def test_the_page_opens_on_a_dataset_on_which_the_reader_trained_two_models() -> None:
    def on_digits(count: int) -> list[Record]:
        conditions = {"dataset": "digits", "pipeline": "mine", "img_size": 32}
        metrics = {"top1": reading("top1", 90.0, method="made up")}
        return [measured(f"net{at}", task="accuracy", conditions=conditions, metrics=metrics) for at in range(count)]

    for count, dataset in ((1, "imagenet-1k"), (2, "digits")):
        gathered = own(*on_digits(count), *trained("wtf-deit3", 6, "published"))
        data = page_data(replace(gathered, table=table_of(gathered.own)))
        assert data.views.accuracies[data.opening.accuracy].scope.dataset == dataset


def test_a_number_that_was_extrapolated_has_this_as_its_source() -> None:
    memory, texts = "train_memory_reference_batch", Texts()
    numbers = {memory: [90e9, 80e9], f"{memory}_low": [88e9, 80e9], f"{memory}_high": [99e9, 80e9]}
    made = column(pd.DataFrame({**numbers, f"{memory}_source": "measured"}), memory, texts)
    assert made is not None
    assert made.source == [texts.number("extrapolated"), texts.number("measured")]


def test_effects_of_the_paper_and_of_the_records_stand_side_by_side() -> None:
    mine = [
        measured(
            name,
            task="accuracy",
            conditions={"dataset": "cifar10", "pipeline": "mine", "img_size": 32},
            metrics={"top1": reading("top1", value, method="made up")},
        )
        for name, value in (("vix_vit", 60.0), ("vix_hybrid_vit", 70.0), ("vix_vin", 62.0), ("vix_hybrid_vin", 71.0))
    ]
    tables = {table.title: table for table in effect_tables(pd.concat([published_table(), table_of(mine)]))}
    rows = {row.change: row for row in tables["Accuracy on CIFAR-10"].rows}
    assert rows["convolutional embedding"].paper.startswith("better: +9.44 points")
    assert rows["convolutional embedding"].own.startswith("better: +9.50 points")
    assert rows["rotary positions"].own == ""
    assert effect_tables(table_of(mine[:1])) == ()


def test_effects_count_seeds_as_the_page_does_and_say_so() -> None:
    mine = [
        measured(
            name,
            task="accuracy",
            conditions={"dataset": "cifar10", "pipeline": "mine", "img_size": 32, "recipe.seed": seed, "final": True},
            metrics={"top1": reading("top1", value, method="made up")},
        )
        for name, values in (("vix_vit", (60.0, 62.0)), ("vix_hybrid_vit", (70.0, 90.0)))
        for seed, value in enumerate(values)
    ]
    for scope, told in ((Scope(), "+19.00 points"), (Scope(seeds="best"), "+28.00 points")):
        [table] = effect_tables(table_of(mine), scope)
        assert told in table.rows[0].own
        assert table.heads == ("The paper, best of three runs", f"Your records, {scope.seeds} over seeds")


def test_the_page_tells_the_answer_of_the_study_as_the_terminal_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("favor.report.page.drawings_of", lambda table, scope, track: [])
    answer = StudyAnswer(
        "quick: 2 models", ("Favored for", "Model"), (("speed", "vit_s16"),), (f"speed: {HOSTILE_NAME}",)
    )
    gathered = own(*trained("wtf-deit3", 2))
    page = page_of(replace(gathered, table=table_of(gathered.own)), answer=answer)
    assert "The answer of this study" in page
    assert "<td>vit_s16</td>" in page
    assert f"<li>speed: {html.escape(HOSTILE_NAME)[:20]}" in page
    assert HOSTILE_NAME not in page
