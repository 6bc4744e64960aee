"""One rule for precision: what `amp` means on a device, and what a record says."""

import pytest
import torch

from favor.errors import RequestError
from favor.machine.precision import Precision, resolve_precision
from favor.training.recipe import load_recipe


@pytest.mark.parametrize("kind", ["cpu", "cuda", "mps"])
def test_amp_is_pytorchs_own_default_on_every_kind_of_device(kind):
    assert Precision.named("amp", kind) == Precision(torch.float32, torch.get_autocast_dtype(kind))


def test_a_record_says_which_type_amp_was():
    assert [resolve_precision("amp", kind) for kind in ("cuda", "cpu")] == ["amp-fp16", "amp-bf16"]
    assert resolve_precision("amp-bf16", "cuda") == "amp-bf16"


def test_only_float16_needs_a_gradient_scaler():
    cpu = torch.device("cpu")
    active = {name: Precision.named(name, "cuda").scaler(cpu).is_enabled() for name in ("fp32", "amp-fp16", "amp-bf16")}
    assert active == {"fp32": False, "amp-fp16": True, "amp-bf16": False}


def test_a_misspelled_precision_is_refused_with_the_name_that_was_meant():
    with pytest.raises(RequestError, match="did you mean 'amp-fp16'"):
        resolve_precision("amp_fp16", "cuda")


def test_training_and_measuring_call_full_precision_by_the_same_name():
    assert load_recipe("laptop-digits").precision == "fp32"
    assert load_recipe("laptop-digits", ["precision=float32"]) == load_recipe("laptop-digits")
