"""What is exported gives what eager mode gives, for any batch size, where a model has a form of its own for it."""

import pytest
import torch
import torch.nn.functional as F

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.runtime.export import traced
from favor.zoo.encoder import Size
from favor.zoo.mixing.fourier.matrices import grid_signal, grid_spectrum
from favor.zoo.sequence.summary.stvit import maxima_of_parts

SMALL = Size(48, 2, 3)


@pytest.mark.parametrize(
    ("name", "part", "settings"),
    [
        ("fnet_s16", "mixer", {}),
        ("gfnet_s16", "mlp", {}),
        ("afno_s16", "mixer", {}),
        ("reformer_s16", "mlp", {"rounds": 2}),
        ("tome_r8_s16", "mlp", {"r": 2}),
        ("gtp_s16", "mlp", {}),
        ("switch_8_s16", "mlp", {"experts": 4}),
        ("avit_s16", "mlp", {}),
        ("nystrom32_s16", "mixer", {"landmarks": 8, "residual_kernel": 5}),
    ],
)
def test_the_exported_graph_equals_eager_mode_for_another_batch_size(
    name: str, part: str, settings: dict[str, int]
) -> None:
    model = favor.create_model(name, size=SMALL, img_size=64, num_classes=7, **settings).double()
    model = with_order_one_weights(model).eval()
    x = images(3, 3, 64, 64, dtype=torch.float64)
    exported = traced(model, x[:2], dynamic_batch=True).module()
    with torch.inference_mode():
        assert largest_difference(exported(x), model(x)) < 1e-9
        with mutated(getattr(model.blocks[1], part)):
            assert largest_difference(exported(x), model(x)) > 1e-3


@pytest.mark.parametrize(("height", "width", "samples"), [(7, 7, 3), (4, 4, 2), (5, 8, 3), (2, 2, 2)])
def test_maxima_of_parts_are_adaptive_max_pooling(height: int, width: int, samples: int) -> None:
    x = images(2, 3, height, width)
    assert torch.equal(maxima_of_parts(x, samples), F.adaptive_max_pool2d(x, samples))
    assert not torch.equal(maxima_of_parts(-x, samples), F.adaptive_max_pool2d(x, samples))


def test_tokens_of_an_exported_avit_halt_by_their_scores() -> None:
    model = with_order_one_weights(favor.create_model("avit_s16", size=SMALL, img_size=64).double()).eval()
    x = images(3, 3, 64, 64, dtype=torch.float64)
    with torch.inference_mode():
        by_scores = model(x)
        exported = traced(model, x[:2], dynamic_batch=True).module()(x)
        model.impose_operating_point()
        assert largest_difference(exported, by_scores) < 1e-9
        assert largest_difference(model(x), by_scores) > 1e-3


@pytest.mark.parametrize(("height", "width"), [(4, 4), (3, 5), (6, 1), (1, 6)])
def test_products_with_matrices_are_the_fourier_transform(height: int, width: int) -> None:
    x = images(2, height, width, 3, dtype=torch.float64)
    real, imaginary = grid_spectrum(x)
    assert largest_difference(torch.complex(real, imaginary).abs(), torch.fft.rfft2(x, dim=(1, 2)).abs()) < 1e-10
    assert largest_difference(real, torch.fft.rfft2(x, dim=(1, 2)).real) < 1e-10
    assert largest_difference(imaginary, torch.fft.rfft2(x, dim=(1, 2)).imag) < 1e-10
    assert largest_difference(grid_signal(real, imaginary, width), x) < 1e-10
