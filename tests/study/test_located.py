"""YAML that knows its lines."""

import pytest

from favor.errors import RequestError
from favor.study.located import LocatedYaml

TEXT = """\
name: mine
models:
- vit_s16
- swin_ti
train:
  recipe: laptop-digits
  seeds: [0,
          1]
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 1),
        (("models", 1), 4),
        (("train", "recipe"), 6),
        (("train", "seeds", 1), 8),
        (("train", "data"), 5),
        (("nonsense", 3), 1),
    ],
)
def test_every_part_knows_its_line_and_what_is_missing_that_of_what_it_is_missing_in(path, line):
    assert LocatedYaml("my.yaml", TEXT).line(path) == line


def test_lists_become_tuples_and_the_rest_stays():
    assert LocatedYaml("my.yaml", TEXT).content["train"] == {"recipe": "laptop-digits", "seeds": (0, 1)}


def test_an_error_names_file_line_part_and_reason():
    error = LocatedYaml("my.yaml", TEXT).error(("train", "seeds", 1), "not a seed")
    assert str(error) == "my.yaml:8: train.seeds[1]: not a seed"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("models: [vit_s16\n", "my.yaml:2: not YAML: expected ',' or ']'"),
        ("a: 1\n\nb: 2\na: 3\n", "my.yaml:4: the key 'a' is there twice"),
        ("x:\n- {b: 1, b: 2}\n", "my.yaml:2: the key 'b' is there twice"),
        ("x: !!python/object/apply:os.getcwd []\n", "my.yaml:1: not YAML: could not determine a constructor"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_line(text, start):
    with pytest.raises(RequestError) as refused:
        LocatedYaml("my.yaml", text)
    assert str(refused.value).startswith(start)


def test_aliases_that_would_unfold_without_end_are_read_in_no_time():
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 2)}]" for i in range(1, 60)]
    assert LocatedYaml("my.yaml", "\n".join(lines)).line(("a59",)) == 60


@pytest.mark.parametrize("text", ["models: &a [*a]\n", "report: &r {dataset: *r}\n", "[" * 5000])
def test_what_holds_itself_or_has_no_bottom_is_refused(text):
    with pytest.raises(RequestError, match=r"^my\.yaml: it is nested without end"):
        LocatedYaml("my.yaml", text)


@pytest.mark.parametrize("key", ["yes", "~", "3", "2020-01-01"])
def test_a_key_that_is_no_text_is_refused_with_its_line(key):
    with pytest.raises(RequestError) as refused:
        LocatedYaml("my.yaml", f"models: [a]\n{key}: 3\n")
    assert str(refused.value) == f"my.yaml:2: the key {key!r} is no text; put it in quotes if it is meant so"
    assert LocatedYaml("my.yaml", f"models: [a]\n'{key}': 3\n").content == {"models": ("a",), key: 3}


def test_a_file_that_is_not_text_is_refused(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_bytes(b"models: [\xff\xfe]")
    with pytest.raises(RequestError, match="not a text in UTF-8"):
        LocatedYaml.read(file)
