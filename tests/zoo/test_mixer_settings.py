"""A mixer's settings that make no sense are refused in one line, before anything is built."""

import pytest
import torch

from favor.errors import RequestError
from favor.zoo.registry import create_miniature

BELOW = {
    "linformer_s16": {"k": (0, -1, "8", 2.5)},
    "nystrom64_s16": {"landmarks": (0, -4), "residual_kernel": (-1, 0, 4)},
    "routing_s16": {"clusters": (0, -3)},
    "sinkhorn_s16": {"blocks": (0, -2)},
    "sinkhorn_cait_s16": {"blocks": (0, -2)},
    "informer_s16": {"factor": (0, -1)},
    "reformer_s16": {"chunk": (0,), "rounds": (0,), "buckets": (0, -4, 6)},
    "synthesizer_fr_s16": {"k": (0,)},
    "performer_s16": {"count": (0, -1)},
    "flt_s16": {"modes": (0,), "waves": (0,), "count": (0,)},
    "scatterbrain_s16": {"cluster": (-5,), "count": (0,)},
    "afno_s16": {"blocks": (0, 5), "shrink": (-1.0, float("nan"))},
    "halonet_h0": {"depths": ((1, 1), (1, 1, 0, 1)), "width": (0, 10), "expansion": (0.0, -0.5)},
}
ABOVE = {"routing_s16": {"clusters": 10_000}, "sinkhorn_s16": {"blocks": 1000}, "sinkhorn_cait_s16": {"blocks": 17}}
"""More than there are tokens, which are 16 and the class token."""


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [(name, key, value) for name, settings in BELOW.items() for key, values in settings.items() for value in values]
    + [(name, key, value) for name, settings in ABOVE.items() for key, value in settings.items()],
)
def test_a_setting_that_makes_no_sense_is_refused_in_one_line(name: str, setting: str, value: object) -> None:
    with torch.device("meta"), pytest.raises(RequestError) as raised:
        create_miniature(name, **{setting: value})
    assert "\n" not in str(raised.value)
    assert str(value) in str(raised.value)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("linformer_s16", {"k": 1}),
        ("nystrom64_s16", {"landmarks": 1, "residual_kernel": None}),
        ("routing_s16", {"clusters": 17}),
        ("sinkhorn_s16", {"blocks": 17}),
        ("informer_s16", {"factor": 1}),
        ("reformer_s16", {"chunk": 1, "rounds": 1, "buckets": 1}),
        ("synthesizer_fr_s16", {"k": 1}),
        ("performer_s16", {"count": 1}),
        ("flt_s16", {"modes": 1, "waves": 1, "count": 1}),
        ("scatterbrain_s16", {"cluster": 0, "count": 1}),
        ("scatterbrain_s16", {"cluster": 1}),
        ("afno_s16", {"blocks": 1, "shrink": 0}),
        ("halonet_h0", {"depths": [1, 1, 1, 1], "width": 4, "expansion": 0.25}),
    ],
)
def test_the_smallest_and_largest_settings_work(name: str, settings: dict[str, object]) -> None:
    model = create_miniature(name, **settings).eval()
    with torch.no_grad():
        assert model(torch.randn(2, 3, 64, 64)).isfinite().all()
