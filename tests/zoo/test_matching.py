"""From what a user writes to the models that it stands for; commands and study files use the one function."""

import pytest

from favor.errors import RequestError
from favor.zoo.matching import matching_models
from favor.zoo.registry import list_models


def test_names_aliases_patterns_classes_and_networks_of_timm_are_models_each_once_in_the_order_given():
    assert matching_models(["vit_s16", "vit_?16", "vit_*16"]) == ["vit_s16", "vit_b16", "vit_l16", "vit_ti16"]
    assert matching_models(["linformer_vit_small_patch16", "linformer_s16"]) == ["linformer_s16"]
    assert matching_models(["how:merging"]) == list_models(how="merging")
    assert matching_models(["where:mlp_block"]) == list_models(where="mlp_block")
    assert matching_models(["timm:resnet10t", "timm:resnet1?t"]) == ["timm:resnet10t", "timm:resnet14t"]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (" ", "a model's name is empty"),
        ("no_such_*", r"no model fits 'no_such_\*'"),
        ("timm:no_such_*", r"no model fits 'timm:no_such_\*'"),
        ("vit_s17", "unknown model 'vit_s17'; did you mean 'vit_s16'"),
        ("hwo:kernel", "unknown kind of model 'hwo'; did you mean 'how'"),
    ],
)
def test_what_stands_for_no_model_is_refused(entry, why):
    with pytest.raises(RequestError, match=why):
        matching_models([entry])
