"""YAML that knows its lines."""

import os

import pytest

from favor.errors import RequestError
from favor.yaml_file import MOST_BYTES, YamlFile

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
    assert YamlFile("my.yaml", TEXT).line(path) == line


def test_lists_become_tuples_and_the_rest_stays():
    assert YamlFile("my.yaml", TEXT).content["train"] == {"recipe": "laptop-digits", "seeds": (0, 1)}


def test_an_error_names_file_line_part_and_reason():
    error = YamlFile("my.yaml", TEXT).error(("train", "seeds", 1), "not a seed")
    assert str(error) == "my.yaml:8: train.seeds[1]: not a seed"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("models: [vit_s16\n", "my.yaml:2: not YAML: expected ',' or ']'"),
        ("a: 1\n\nb: 2\na: 3\n", "my.yaml:4: duplicate key 'a'; keep one of them"),
        ("x:\n- {b: 1, b: 2}\n", "my.yaml:2: duplicate key 'b'"),
        (
            "x: !!python/object/apply:os.getcwd []\n",
            "my.yaml:1: tags such as '!!python/object/apply:os.getcwd' are not",
        ),
        ("a: 1\nx: !!bool x\n", "my.yaml:2: tags such as '!!bool' are not supported; write the plain value"),
        ("a: &a [1]\nb: *a\n", "my.yaml:2: aliases such as '*a' are not supported; repeat the value"),
        ("models: &a [*a]\n", "my.yaml:1: aliases such as '*a'"),
        ("a: 1\nb: " + "[" * 5000, "my.yaml:2: nested more than 16 levels deep"),
        ("a: 1\nb: " + "9" * 5000, "my.yaml:2: a number of 5,000 digits; the limit is 64"),
        ("a: 99999999999999999999\n", "my.yaml:1: '99999999999999999999' does not fit into a 64-bit integer"),
        ("a: 0x_\n", "my.yaml:1: '0x_' is not a number"),
        ("a: 2020-13-45\n", "my.yaml:1: '2020-13-45' would be read as a date"),
        ('a: "\\e[31m"\n', "my.yaml:1: a string with the control character '\\x1b'"),
        ('a: "\\ud800"\n', "my.yaml:1: a string with the control character '\\ud800'"),
        ("a: 1\nb: \0\n", "my.yaml:2: the character 0x0 is not allowed in YAML"),
        ("a: 1\n---\nb: 2\n", "my.yaml:2: not YAML: but found another document"),
        ("a: '" + "x" * 20_000 + "'\n", "my.yaml:1: a value of 20,000 characters; the limit is 10,000"),
        ("- a\n" * 60_000, "my.yaml:50000: more than 50,000 values"),
        ("#" * (MOST_BYTES + 1), "my.yaml: 262,145 characters, more than the limit of 262,144 for a YAML file"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_line(text, start):
    with pytest.raises(RequestError) as refused:
        YamlFile("my.yaml", text)
    assert str(refused.value).startswith(start)
    assert "\n" not in str(refused.value)


def test_an_error_repeats_at_most_200_characters_of_the_file():
    for text in (
        "? [a]\n: b\n",
        "x" * 900 + ": 1\n" + "x" * 900 + ": 1\n",
        "!" * 9000,
        "a: *" + "b" * 9000,
        "@" * 9000,
    ):
        with pytest.raises(RequestError) as refused:
            YamlFile("my.yaml", text)
        assert len(str(refused.value)) < 300


def test_aliases_that_would_unfold_to_gigabytes_are_refused_at_the_first():
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 2)}]" for i in range(1, 60)]
    with pytest.raises(RequestError, match=r"^my\.yaml:2: aliases such as '\*a0' are not supported"):
        YamlFile("my.yaml", "\n".join(lines))


@pytest.mark.parametrize("key", ["yes", "~", "3", "2020-01-01"])
def test_a_key_that_is_no_text_is_refused_with_its_line(key):
    with pytest.raises(RequestError) as refused:
        YamlFile("my.yaml", f"models: [a]\n{key}: 3\n")
    assert str(refused.value) == f"my.yaml:2: the key {key!r} is not a string; quote it"
    assert YamlFile("my.yaml", f"models: [a]\n'{key}': 3\n").content == {"models": ("a",), key: 3}


def test_a_file_that_is_not_text_is_refused(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_bytes(b"models: [\xff\xfe]")
    with pytest.raises(RequestError, match=r"my\.yaml: not a text file in UTF-8 \(line 1, byte 9\)"):
        YamlFile.read(file)


def test_a_pipe_or_a_device_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    for name in ("pipe.yaml", "zero.yaml"):
        with pytest.raises(RequestError, match="not a regular file"):
            YamlFile.read(tmp_path / name)


def test_a_file_beyond_the_bound_is_not_read_to_its_end(tmp_path):
    (tmp_path / "large.yaml").write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(RequestError, match=r"large\.yaml: larger than the limit of 0.262144 MB"):
        YamlFile.read(tmp_path / "large.yaml")


def test_many_unknown_keys_are_answered_in_time():
    from favor.study.schema import study_in

    with pytest.raises(RequestError, match="my.yaml:1: k0: unknown key 'k0'"):
        study_in(YamlFile("my.yaml", "".join(f"k{i}: 1\n" for i in range(20_000))), default_name="my")
