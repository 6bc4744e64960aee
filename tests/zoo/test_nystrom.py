"""Nystromformer with every token a landmark is softmax attention; its parts do what their names say."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.attention import Attention
from favor.zoo.mixing.low_rank.nystrom import NystromMixer, TokenConvolution, pseudo_inverse, segment_means
from favor.zoo.slots import Tokens

TOKENS = Tokens(4, 4, class_token=True)
CONVERGED = 40
"""Steps of the Newton iteration after which nothing changes any more in double precision."""


def pair(rotary: bool = False, steps: int = CONVERGED) -> tuple[Attention, NystromMixer]:
    """Softmax attention, and a Nystrom mixer with the same weights and every token a landmark."""
    softmax = with_order_one_weights(Attention(24, 3, TOKENS, rotary=rotary)).double()
    nystrom = NystromMixer(
        24, 3, TOKENS, landmarks=TOKENS.count, residual_kernel=None, inverse_steps=steps, rotary=rotary
    ).double()
    nystrom.load_state_dict(softmax.state_dict())
    return softmax, nystrom


@pytest.mark.parametrize("rotary", [False, True])
def test_with_every_token_a_landmark_and_a_converged_inverse_it_is_softmax_attention(rotary: bool) -> None:
    softmax, nystrom = pair(rotary)
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    with torch.no_grad():
        assert largest_difference(nystrom(x), softmax(x)) < 1e-8
        with mutated(nystrom):
            assert largest_difference(nystrom(x), softmax(x)) > 1e-3


@pytest.mark.parametrize("landmarks", [1, 4, 5])
def test_with_few_landmarks_it_is_the_product_of_three_explicit_matrices(landmarks: int) -> None:
    mixer = NystromMixer(24, 3, TOKENS, landmarks=landmarks, residual_kernel=None, inverse_steps=CONVERGED)
    with_order_one_weights(mixer).double()
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    longer = TOKENS.count % landmarks
    lengths = [TOKENS.count // landmarks] * (landmarks - longer) + [TOKENS.count // landmarks + 1] * longer
    with torch.no_grad():
        q, k, v = (x @ mixer.qkv.weight.T + mixer.qkv.bias).split(24, dim=-1)
        heads = []
        for part in (slice(0, 8), slice(8, 16), slice(16, 24)):
            means_q, means_k = (
                torch.stack([stretch.mean(dim=1) for stretch in t[..., part].split(lengths, dim=1)], dim=1)
                for t in (q, k)
            )
            to_landmarks = (q[..., part] @ means_k.mT / 8**0.5).softmax(dim=-1)
            between = (means_q @ means_k.mT / 8**0.5).softmax(dim=-1)
            from_landmarks = (means_q @ k[..., part].mT / 8**0.5).softmax(dim=-1)
            heads.append(to_landmarks @ torch.linalg.pinv(between) @ from_landmarks @ v[..., part])
        expected = torch.cat(heads, dim=-1) @ mixer.proj.weight.T + mixer.proj.bias
        assert largest_difference(mixer(x), expected) < 1e-8
        with mutated(mixer):
            assert largest_difference(mixer(x), expected) > 1e-3


def test_six_steps_come_near_it_but_not_all_the_way() -> None:
    softmax, nystrom = pair(steps=6)
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    with torch.no_grad():
        expected = softmax(x)
        error = float((nystrom(x) - expected).norm() / expected.norm())
    assert 1e-4 < error < 0.3


def test_the_iteration_converges_to_the_pseudo_inverse() -> None:
    a = images(2, 3, 12, 12, dtype=torch.float64).softmax(dim=-1)
    expected = torch.linalg.pinv(a)
    assert largest_difference(pseudo_inverse(a, CONVERGED), expected) < 1e-8
    assert largest_difference(pseudo_inverse(a, 2), expected) > 1e-1


@given(tokens=st.integers(1, 60), share=st.floats(0.0, 1.0))
def test_segments_cover_all_tokens_once_and_their_lengths_differ_by_one_at_most(tokens: int, share: float) -> None:
    segments = max(1, round(share * tokens))
    values = images(tokens, 2, dtype=torch.float64)
    longer = tokens % segments
    lengths = [tokens // segments] * (segments - longer) + [tokens // segments + 1] * longer
    expected = torch.stack([part.mean(dim=0) for part in values.split(lengths)])
    assert largest_difference(segment_means(values, segments), expected) < 1e-12


@pytest.mark.parametrize("tokens", [17, 50, 64, 197, 577])
def test_any_number_of_tokens_has_landmarks(tokens: int) -> None:
    mixer = NystromMixer(24, 3, Tokens(1, tokens, class_token=False), landmarks=64)
    x = images(2, tokens, 24)
    assert mixer(x).isfinite().all()
    assert segment_means(x, min(64, tokens)).shape == (2, min(64, tokens), 24)


def test_the_residual_convolution_adds_its_filter_over_the_values_of_each_head() -> None:
    plain = with_order_one_weights(NystromMixer(24, 3, TOKENS, landmarks=4, residual_kernel=None)).double()
    residual = NystromMixer(24, 3, TOKENS, landmarks=4, residual_kernel=3).double()
    residual.load_state_dict(plain.state_dict(), strict=False)
    taps = torch.tensor([[0.5, 1.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, -1.0]], dtype=torch.float64)
    with torch.no_grad():
        residual.residual.weight.copy_(taps[:, None, :, None])
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    with torch.no_grad():
        v = plain.split(x)[2]
        before = torch.cat([torch.zeros_like(v[:, :, :1]), v[:, :, :-1]], dim=2)
        after = torch.cat([v[:, :, 1:], torch.zeros_like(v[:, :, :1])], dim=2)
        added = torch.stack([0.5 * before[:, 0] + v[:, 0], 2 * v[:, 1], -after[:, 2]], dim=1)
        expected = plain(x) + added.transpose(1, 2).flatten(2) @ plain.proj.weight.T
        assert largest_difference(residual(x), expected) < 1e-12
        assert largest_difference(residual(x), plain(x)) > 1e-1


@pytest.mark.parametrize("batch", [0, 1, 5])
def test_the_convolution_is_a_plain_one_with_a_group_for_each_head(batch: int) -> None:
    folded = TokenConvolution(3, 5).double()
    plain = nn.Conv2d(3, 3, (5, 1), padding=(2, 0), groups=3, bias=False).double()
    plain.load_state_dict(folded.state_dict())
    x = images(batch, 3, 11, 4, dtype=torch.float64).requires_grad_()
    found, expected = folded(x), plain(x)
    assert found.shape == expected.shape
    if batch:
        grads = [torch.autograd.grad(y.square().sum(), [x, m.weight]) for y, m in ((found, folded), (expected, plain))]
        assert largest_difference(found, expected) < 1e-12
        assert max(largest_difference(one, other) for one, other in zip(*grads, strict=True)) < 1e-10


def test_a_convolution_without_a_middle_is_refused() -> None:
    with pytest.raises(RequestError, match="must be odd"):
        NystromMixer(24, 3, TOKENS, residual_kernel=32)


def test_parameters_are_vit_s_and_33_taps_a_head_and_block() -> None:
    # ViT of the benchmark: 5,721,832, 22,059,496 and 86,585,320; its Nystrom has the same number, without the taps
    expected = {"ti": 5_721_832 + 12 * 3 * 33, "s": 22_059_496 + 12 * 6 * 33, "b": 86_585_320 + 12 * 12 * 33}
    for size, count in expected.items():
        with torch.device("meta"):
            models = [favor.create_model(f"nystrom{landmarks}_{size}16") for landmarks in (32, 64)]
        assert [sum(p.numel() for p in model.parameters()) for model in models] == [count, count]
        assert [model.blocks[0].mixer.landmarks for model in models] == [32, 64]


def test_it_is_found_under_the_benchmark_s_names() -> None:
    assert favor.card("nystrom32_vit_small_patch16").name == "nystrom32_s16"
    assert favor.card("Nystrom ViT-64-S/16").name == "nystrom64_s16"
