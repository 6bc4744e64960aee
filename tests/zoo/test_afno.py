"""AFNO is its input and a block-diagonal complex map of it in Fourier space."""

import math

import pytest
import torch
from torch import Tensor

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.mixing.fourier.afno import AfnoMixer
from favor.zoo.slots import Tokens


def unitary_dft(n: int) -> Tensor:
    angles = torch.outer(torch.arange(n), torch.arange(n)).double() * (-2 * math.pi / n)
    return torch.complex(angles.cos(), angles.sin()) / math.sqrt(n)


def on_parts(function: object, z: Tensor) -> Tensor:
    """A function of real numbers, applied to the real and to the imaginary parts."""
    return torch.complex(function(z.real), function(z.imag))


def shrunk(values: Tensor) -> Tensor:
    return values.sign() * (values.abs() - 0.01).clamp(min=0)


def by_definition(mixer: AfnoMixer, x: Tensor, grid: tuple[int, int]) -> Tensor:
    """The same with DFT matrices, one block and one full set of frequencies after the other."""
    rows, columns = unitary_dft(grid[0]), unitary_dft(grid[1])
    spectrum = torch.einsum("kh,lw,bhwc->bklc", rows, columns, x.unflatten(1, grid).to(torch.complex128))
    w1, b1, w2, b2 = (torch.complex(part[0], part[1]) for part in (mixer.w1, mixer.b1, mixer.w2, mixer.b2))
    blocks = []
    for index, modes in enumerate(spectrum.chunk(w1.shape[0], dim=-1)):
        hidden = on_parts(torch.relu, modes @ w1[index] + b1[index])
        blocks.append(on_parts(shrunk, hidden @ w2[index] + b2[index]))
    mapped = torch.cat(blocks, dim=-1)
    # the map does not keep the symmetry of a real signal's spectrum: its first half counts, mirrored onto the second
    width = grid[1]
    for column in range(width // 2 + 1, width):
        mirrored = mapped[:, :, width - column].flip(1).roll(1, dims=1)
        mapped[:, :, column] = mirrored.conj()
    return x + torch.einsum("kh,lw,bklc->bhwc", rows.conj(), columns.conj(), mapped).real.flatten(1, 2)


@pytest.mark.parametrize("grid", [(4, 4), (5, 5), (3, 6), (6, 3)])
def test_it_is_its_block_diagonal_map_in_fourier_space(grid: tuple[int, int]) -> None:
    mixer = with_order_one_weights(AfnoMixer(24, 3, Tokens(*grid, class_token=False), blocks=4)).double()
    x = images(2, grid[0] * grid[1], 24, dtype=torch.float64)
    with torch.no_grad():
        expected = by_definition(mixer, x, grid)
        assert largest_difference(mixer(x), expected) < 1e-12
        assert largest_difference(expected, x) > 1e-1
        with mutated(mixer):
            assert largest_difference(mixer(x), expected) > 1e-3


@pytest.mark.parametrize("weight", ["w1", "b1", "w2", "b2"])
def test_each_of_its_weights_makes_a_difference(weight: str) -> None:
    tokens = Tokens(4, 4, class_token=False)
    mixer = with_order_one_weights(AfnoMixer(24, 3, tokens, blocks=4)).double()
    x = images(2, 16, 24, dtype=torch.float64)
    with torch.no_grad():
        before = mixer(x)
        getattr(mixer, weight).mul_(1.03)
        assert largest_difference(mixer(x), before) > 1e-4


def test_channels_of_one_block_do_not_reach_another() -> None:
    mixer = with_order_one_weights(AfnoMixer(24, 3, Tokens(4, 4, class_token=False), blocks=4)).double()
    x = images(1, 16, 24, dtype=torch.float64)
    changed = x.clone()
    changed[..., 0] += images(1, 16, seed=2, dtype=torch.float64)
    with torch.no_grad():
        difference = (mixer(changed) - mixer(x)).abs().amax(dim=(0, 1))
    assert difference[:6].min() > 1e-3
    assert difference[6:].max() < 1e-12


def test_half_precision_weights_work() -> None:
    mixer = with_order_one_weights(AfnoMixer(24, 3, Tokens(4, 4, class_token=False))).to(torch.bfloat16)
    y = mixer(images(2, 16, 24, dtype=torch.bfloat16))
    assert y.dtype is torch.bfloat16
    assert y.isfinite().all()


def test_a_class_token_and_blocks_that_do_not_divide_the_channels_are_refused() -> None:
    with pytest.raises(RequestError, match="class token"):
        AfnoMixer(24, 3, Tokens(4, 4, class_token=True))
    with pytest.raises(RequestError, match="24 channels cannot be split into 7 blocks"):
        AfnoMixer(24, 3, Tokens(4, 4, class_token=False), blocks=7)


def test_parameters_are_those_of_the_benchmark() -> None:
    expected = {"ti": 4_173_352, "s": 15_865_960, "b": 61_811_944}
    for size, count in expected.items():
        with torch.device("meta"):
            model = favor.create_model(f"afno_{size}16")
        assert sum(p.numel() for p in model.parameters()) == count
    assert favor.card("AFNO-S/16").name == favor.card("afno_s_p16").name == "afno_s16"
