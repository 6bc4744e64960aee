"""Devices as data: what is built in, what a user may bring, and what is refused."""

from pathlib import Path

import pytest

from favor.errors import RequestError
from favor.simulation import devices
from favor.simulation.devices import built_in_devices, device, known_as

OWN = """
name: my-gpu
title: A card of my own
compute_capability: 8.6
multiprocessors: 10
clock_mhz: 1000
tflops: {fp16: 10, fp32: 5}
bandwidth_gb_s: 100
cache_mb: 2
memory_gib: 4
launch_us: 10
sustained: 0.9
sustained_deviation: 0.1
sources: ["its box"]
"""


def test_all_devices_of_the_issue_are_built_in():
    names = {each.name for each in built_in_devices()}
    wanted = "a100 a100-80gb h100 h200 v100 t4 p100 l4 rtx3090 rtx4090 rtx5090 rtx-pro-6000 jetson-orin"
    assert names >= set(wanted.split())


@pytest.mark.parametrize("each", built_in_devices(), ids=lambda each: each.name)
def test_a_built_in_device_has_sources_and_figures_that_fit_each_other(each):
    assert all(len(source) > 10 for source in each.sources)
    assert each.tflops.fp16 >= each.tflops.fp32
    lanes = 2 * each.multiprocessors * each.clock
    assert 60 <= each.tflops.fp32 * 1e12 / lanes <= 140, "FP32 units of a multiprocessor: 64 or 128"
    assert device(each.name) is each


@pytest.mark.parametrize("written", ["A100", "a100-40gb", "NVIDIA A100-SXM4-40GB", "nvidia a100 sxm4 40 gb"])
def test_a_device_is_known_by_what_people_and_drivers_call_it(written):
    assert known_as(device("a100"), written)
    assert not known_as(device("a100-80gb"), written)


def test_an_unknown_device_is_refused_with_one_that_is_close():
    with pytest.raises(RequestError, match="did you mean 'rtx3090'"):
        device("rtx309")


def test_a_file_of_a_users_own_is_a_device(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(OWN)
    mine = device(str(file))
    assert mine.peak_flops("fp16") == 10e12
    assert mine.memory == 4 * 2**30


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("clock_mhz: 1000", "clock_mhz: -1"), "clock_mhz"),
        (("clock_mhz: 1000", "clock_mhz: 1.0"), "mine.yaml:6: clock_mhz: 2.5e[+]05 float32 products .*check the units"),
        (("compute_capability: 8.6", "compute_capability: 86"), "mine.yaml:4: compute_capability: .*less than 20"),
        (("bandwidth_gb_s: 100", "bandwidth_gb_s: 0.1"), "mine.yaml:8: bandwidth_gb_s: 1e[+]05 operations per byte"),
        (("clock_mhz: 1000", "clock: 1000"), "did you mean 'clock_mhz'"),
        (("multiprocessors: 10\n", ""), "multiprocessors: Field required"),
        (('sources: ["its box"]', "sources: []"), "sources"),
        (("fp16: 10", "fp17: 10"), "tflops.fp16"),
        (("name: my-gpu", "name: [my-gpu"), "not YAML"),
        (("sustained: 0.9", "sustained: 9"), r"mine.yaml:12: sustained: .*, not 9"),
        (("sustained: 0.9", "sustained: .nan"), r"mine.yaml:12: sustained: .*finite number.*, not nan"),
        (
            ("sustained_deviation: 0.1", "sustained_deviation: .nan"),
            "mine.yaml:13: sustained_deviation: .*finite number",
        ),
        (("name: my-gpu", "name: my-gpu\nname: other"), r"mine.yaml:3: duplicate key 'name'"),
        (("name: my-gpu", "name: &a [x]\naliases: *a"), "mine.yaml:3: aliases such as"),
    ],
)
def test_a_wrong_file_is_refused_with_the_key_and_the_cause(tmp_path, change, told):
    file = tmp_path / "mine.yaml"
    file.write_text(OWN.replace(*change))
    with pytest.raises(RequestError, match=told) as refused:
        device(str(file))
    assert "\n" not in str(refused.value)


def test_a_file_in_another_encoding_is_refused(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_bytes(OWN.replace("of my own", "für mich").encode("latin-1"))
    with pytest.raises(RequestError, match="not a text file in UTF-8"):
        device(str(file))


@pytest.mark.parametrize("name", ["a100", "A100_40GB", "rtx3090"])
def test_a_file_under_the_name_of_a_built_in_device_is_refused(tmp_path, name):
    file = tmp_path / "mine.yaml"
    file.write_text(OWN.replace("my-gpu", name))
    with pytest.raises(RequestError, match="is built in"):
        device(str(file))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(RequestError, match="no such file"):
        device(str(tmp_path / "none.yaml"))


def test_tf32_without_units_is_float32_and_bf16_without_units_is_refused():
    assert device("t4").peak_flops("tf32") == device("t4").peak_flops("fp32")
    assert device("a100").peak_flops("tf32") == 156e12
    with pytest.raises(RequestError, match="does not support bf16"):
        device("t4").peak_flops("bf16")


def test_a_device_is_in_the_file_of_its_name_and_so_is_read_without_the_others() -> None:
    files = Path(devices.__file__).parent.joinpath("devices").glob("*.yaml")
    assert {file.stem for file in files} == {each.name for each in built_in_devices()}
