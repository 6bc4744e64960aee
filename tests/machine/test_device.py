"""Devices: the ones that are here, and how the others are refused."""

from pathlib import Path

import pytest
import torch

from favor.errors import RequestError
from favor.machine.device import available, find_device, processor_name, short_gpu_name


def check_interface(kind: str) -> None:
    """What every device must do where it is."""
    device = find_device(kind)
    left = torch.randn(64, 64, device=device.torch_device)
    out = []

    def run() -> None:
        out.append(left @ left)

    peak = device.peak_of(run, [left])
    device.synchronize()
    assert peak.allocated >= left.numel() * 4 * 2
    assert device.name
    assert device.label == device.label.lower()
    assert 0 < device.free_memory() <= device.total_memory()
    assert device.room(0, None) > 0
    assert device.room(0, 2**20) <= 2**20
    device.release()


def test_the_cpu_has_the_interface():
    check_interface("cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_cuda_gpu_has_the_interface_and_reserves_at_least_what_it_allocates():
    check_interface("cuda")
    peak = find_device("cuda").peak_of(lambda: None, [])
    assert peak.reserved is not None
    assert peak.reserved >= peak.allocated


@pytest.mark.skipif(not torch.backends.mps.is_available(), reason="no MPS device here")
def test_apples_gpu_has_the_interface():
    check_interface("mps")


def test_without_a_wish_the_fastest_kind_is_taken():
    assert find_device().kind == available()[-1]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("cpuu", "unknown device 'cpuu'; did you mean 'cpu'"),
        ("cpu:1", "there is only one; write cpu"),
        pytest.param(
            "cuda",
            "device cuda: PyTorch .* does not find it; available: .*cpu",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device"),
        ),
    ],
)
def test_a_device_that_is_not_here_is_refused_with_what_is(wanted, why):
    with pytest.raises(RequestError, match=why):
        find_device(wanted)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("Tesla T4", "t4"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
    ],
)
def test_gpus_are_named_as_published_results_name_them(name, short):
    assert short_gpu_name(name) == short


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n", "AMD EPYC (family 26, model 2)"),
        ("cpu family\t: 23\nmodel\t\t: 49\nmodel name\t: AMD EPYC\n", "AMD EPYC (family 23, model 49)"),
        (
            "cpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R) Processor @ 2.20GHz\n",
            "Intel(R) Xeon(R) Processor @ 2.20GHz (family 6, model 85)",
        ),
        (
            "cpu family\t: 6\nmodel\t\t: 154\nmodel name\t: 12th Gen Intel(R) Core(TM) i9-12900H\n",
            "12th Gen Intel(R) Core(TM) i9-12900H",
        ),
        ("model name\t: ARMv8 Processor rev 1 (v8l)\n", "ARMv8 Processor rev 1 (v8l)"),
    ],
)
def test_a_processor_whose_model_number_is_hidden_is_named_with_its_generation(
    text: str, name: str, tmp_path: Path
) -> None:
    information = tmp_path / "cpuinfo"
    information.write_text(text)
    assert processor_name(information) == name
