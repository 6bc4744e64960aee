"""A setting's annotation says which values it takes; the others are refused in one line, before anything is built."""

import numpy as np
import pytest
import torch

import favor
from favor.errors import RequestError
from favor.zoo.encoder import Size
from favor.zoo.registry import create_miniature

REFUSED = [
    ("tome_r8_s16", {"r": -1}, "r of tome_r8_s16 is a whole number of 0 or more, not -1"),
    ("tome_r8_s16", {"r": 2.5}, "r of tome_r8_s16 is a whole number of 0 or more, not 2.5"),
    ("tome_r8_s16", {"r": "8"}, "r of tome_r8_s16 is a whole number of 0 or more, not '8'"),
    ("tome_r8_s16", {"r": True}, "r of tome_r8_s16 is a whole number of 0 or more, not True"),
    ("tome_r8_s16", {"size": 3}, "size of tome_r8_s16 is a Size, not 3"),
    ("tokenlearner_8_50_s16", {"learned": 0}, "learned of .* is a whole number of 1 or more, not 0"),
    ("tokenlearner_8_50_s16", {"after": 1.5}, "after is the share of blocks"),
    ("gtp_s16", {"propagated": 2.5}, "propagated of gtp_s16 is a whole number of 0 or more, not 2.5"),
    ("switch_8_s16", {"experts": 2.5}, "experts of switch_8_s16 is a whole number of 1 or more, not 2.5"),
    ("evit_s16", {"keep": "0.7"}, "keep of evit_s16 is a number, not '0.7'"),
    ("evit_s16", {"keep": float("nan")}, "keep of evit_s16 is a number, not nan"),
    ("avit_s16", {"survival": 0.5}, "survival of avit_s16 is a sequence, each value a number or None, not 0.5"),
    ("avit_s16", {"survival": "imposed"}, "survival of avit_s16 is a sequence"),
    ("avit_s16", {"survival": (1.0, "x")}, "survival of avit_s16 is a sequence"),
    ("stvit_swin_ti", {"samples": 0}, "samples of stvit_swin_ti is a whole number of 1 or more, not 0"),
    ("stvit_swin_ti", {"depths": (2, 2, 6)}, "depths of .* is 4 values, each a whole number of 1 or more"),
    ("cvt_13", {"depths": (1, 2)}, r"depths of cvt_13 is 3 values, each a whole number of 1 or more, not \(1, 2\)"),
    ("cvt_13", {"depths": 3}, "depths of cvt_13 is 3 values"),
    ("wavevit_s", {"reductions": (4, 0, None, None)}, "reductions of wavevit_s is 4 values"),
    ("performer_s16", {"features": "tanh"}, "features of performer_s16 is one of 'softmax', 'relu', not 'tanh'"),
    ("vit_s16", {"pad": 1}, "pad of vit_s16 is true or false, not 1"),
    ("vit_s16", {"patch_size": 0}, "patch_size of vit_s16 is a whole number of 1 or more, not 0"),
    ("misnomer_d6", {"patch_size": -32}, "patch_size of misnomer_d6 is a whole number of 1 or more, not -32"),
    ("vix_vit", {"grid": 0}, "grid of vix_vit is a whole number of 1 or more, not 0"),
    ("vix_vit", {"grid": 33}, "33 tokens along the shorter side cannot be made of 32 px"),
    ("vix_vin", {"landmarks": 0}, "landmarks of vix_vin is a whole number of 1 or more or None, not 0"),
    ("vix_vit", {"landmarks": 8}, "landmarks is a setting of x='n', not of x='t'"),
    ("vix_vip", {"kv_heads": 2}, "kv_heads is a setting of x='l', not of x='p'"),
    ("vix_cct", {"k": 8}, "k is a setting of x='l', not of x='t'"),
    ("vix_cct", {"mlp_ratio": 0.0}, "has no hidden unit"),
    ("vix_vil", {"kv_heads": 3}, "4 heads of queries cannot share 3 heads"),
    ("vix_cvt", {"head_dim": 0}, "head_dim of vix_cvt is a whole number of 1 or more, not 0"),
    ("vix_cvt", {"key_stride": 0}, "key_stride of vix_cvt is a whole number of 1 or more, not 0"),
    ("vix_pit", {"size": Size(50, 4, 4)}, "50 channels cannot be split into 4 heads"),
    ("swin_ti", {"network": 7}, "network of swin_ti is a mapping or None, not 7"),
    ("swin_ti", {"network": {"bogus": 1}}, "unknown setting of timm's swin_tiny_patch4_window7_224 'bogus'"),
    ("swin_ti", {"network": {"embed_dims": 7}}, "did you mean 'embed_dim'"),
    ("swin_ti", {"network": {"img_size": 64}}, "img_size is not a setting of the network; say img_size=64 beside it"),
    ("fastvit_t8", {"network": {"drop_path_rate": 0.1}}, "say drop_path=0.1 beside it"),
    ("coat_ti", {"network": {"bogus": 1}}, "timm cannot build 'coat_tiny'"),
    ("timm:levit_128s", {"bogus": 1}, "timm cannot build 'levit_128s'"),
]


@pytest.mark.parametrize(("name", "settings", "message"), REFUSED)
def test_a_value_that_makes_no_sense_is_refused_in_one_line(
    name: str, settings: dict[str, object], message: str
) -> None:
    with torch.device("meta"), pytest.raises(RequestError, match=message) as raised:
        create_miniature(name, **settings)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({"dim": 0}, "dim of a size is a whole number of 1 or more, not 0"),
        ({"dim": 48.0}, "dim of a size is a whole number of 1 or more, not 48.0"),
        ({"depth": -1}, "depth of a size is a whole number of 1 or more, not -1"),
        ({"heads": 0}, "heads of a size is a whole number of 1 or more, not 0"),
        ({"mlp_ratio": float("nan")}, "mlp_ratio of a size is a number, not nan"),
        ({"mlp_ratio": 0.01}, "an MLP of 0.01 times 48 channels has no hidden unit"),
    ],
)
def test_a_size_that_makes_no_sense_is_refused_in_one_line(size: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Size(**{"dim": 48, "depth": 2, "heads": 3, **size})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("tome_r8_s16", {"r": np.int64(3)}),
        ("evit_s16", {"keep": 1}),
        ("evit_s16", {"keep": np.float32(0.5)}),
        ("avit_s16", {"survival": [1, 1, 0.5, 0.25]}),
        ("cvt_13", {"depths": [1, 1, 1]}),
        ("vit_s16", {"layer_scale": None}),
        ("swin_ti", {"network": {"window_size": 2, "embed_dim": 24, "num_heads": [1, 2], "depths": [1, 1]}}),
    ],
)
def test_lists_and_numpy_s_numbers_are_taken_where_they_make_sense(name: str, settings: dict[str, object]) -> None:
    with torch.device("meta"):
        create_miniature(name, **settings)


def test_what_says_nothing_of_its_values_takes_all() -> None:
    """A plugin need not annotate, and may quote names that are there for type checkers only."""

    def build(a, b: "Unheard" = 0, **options: object) -> torch.nn.Module:  # type: ignore[no-untyped-def] # noqa: F821
        return torch.nn.Flatten()

    from favor.zoo.registry import unregister

    favor.register([favor.zoo.registry.Variant("bare")], title="", how=None, year=None, paper=None, changes="")(build)
    try:
        favor.create_model("bare", a="anything", b=object())
    finally:
        unregister(["bare"])
