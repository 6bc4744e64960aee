"""Sinkhorn attention with one block is softmax attention; with more, blocks see a soft permutation of the others."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.attention import Attention
from favor.zoo.encoder import Size
from favor.zoo.mixing.sparse.sinkhorn import BlockSortMixer, PooledSinkhornMixer, SinkhornMixer, balanced
from favor.zoo.slots import Tokens
from favor.zoo.weights import load_weights

TOKENS = Tokens(4, 4, class_token=True)
mixers = pytest.mark.parametrize("kind", [SinkhornMixer, PooledSinkhornMixer])


def with_weights_of(softmax: Attention, mixer: BlockSortMixer) -> BlockSortMixer:
    with_order_one_weights(mixer, seed=7).double().eval()
    mixer.load_state_dict(softmax.double().state_dict(), strict=False)
    return mixer


@mixers
def test_one_block_is_softmax_attention(kind: type[BlockSortMixer]) -> None:
    softmax = with_order_one_weights(Attention(24, 3, TOKENS))
    mixer = with_weights_of(softmax, kind(24, 3, TOKENS, blocks=1))
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    assert largest_difference(mixer(x), softmax(x)) < 1e-12
    with mutated(mixer):
        assert largest_difference(mixer(x), softmax(x)) > 1e-3


@mixers
@pytest.mark.parametrize("count", [16, 17, 19])
def test_it_equals_attention_to_own_and_sorted_tokens_one_block_after_the_other(
    kind: type[BlockSortMixer], count: int
) -> None:
    tokens = Tokens(1, count, class_token=False)
    mixer = with_order_one_weights(kind(24, 3, tokens, blocks=4)).double().eval()
    x = images(2, count, 24, dtype=torch.float64)
    q, k, v = mixer.split(x)
    order = balanced(mixer.scores(x, mixer.in_blocks(q), mixer.in_blocks(k)), noise=False)
    expected = torch.zeros_like(q)
    for image in range(2):
        for head in range(3):
            blocks = [range(start, min(start + mixer.length, count)) for start in range(0, count, mixer.length)]
            for block, own in enumerate(blocks):
                keys, values, weights = [k[image, head, own]], [v[image, head, own]], [torch.ones(len(own)).double()]
                for offset in range(mixer.length):
                    there = [i for i in range(4) if offset < len(blocks[i])]
                    weight = order[image, head, block, there]
                    places = [blocks[i][offset] for i in there]
                    keys.append((weight @ k[image, head, places] / weight.sum())[None])
                    values.append((weight @ v[image, head, places] / weight.sum())[None])
                    weights.append(weight.sum()[None])
                logits = q[image, head, own] @ torch.cat(keys).T * mixer.scale + torch.cat(weights).log()
                expected[image, head, own] = logits.softmax(dim=-1) @ torch.cat(values)
    expected = mixer.proj(mixer.join(expected))
    assert largest_difference(mixer(x), expected) < 1e-12
    with mutated(mixer):
        assert largest_difference(mixer(x), expected) > 1e-2


@given(st.integers(1, 6), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_balancing_gives_rows_and_columns_that_sum_to_one(blocks: int, seed: int) -> None:
    # Eight rounds converge the more slowly the further the scores are apart: twice as far, columns are up to 4 % off.
    scores = 0.5 * images(2, 3, blocks, blocks, seed=seed, dtype=torch.float64).relu()
    order = balanced(scores, noise=False)
    ones = torch.ones(2, 3, blocks, dtype=torch.float64)
    assert torch.allclose(order.sum(dim=-1), ones, atol=1e-12)
    assert torch.allclose(order.sum(dim=-2), ones, atol=2e-3)


def test_balancing_divides_columns_and_rows_in_turn_at_temperature_three_quarters() -> None:
    scores = images(2, 5, 5, dtype=torch.float64).relu()
    expected = (scores / 0.75).exp()
    for _ in range(8):
        expected = expected / expected.sum(dim=-2, keepdim=True)
        expected = expected / expected.sum(dim=-1, keepdim=True)
    assert largest_difference(balanced(scores, noise=False), expected) < 1e-12
    assert largest_difference(balanced(1.03 * scores, noise=False), expected) > 1e-3


def test_the_noise_of_the_scores_is_gumbel_s() -> None:
    scores = images(4, 200, 5, 5, dtype=torch.float64).relu()
    torch.manual_seed(0)
    # the logarithm of an exponential variable, turned around: few large values, a mean of 0.577
    noise = -torch.empty_like(scores).exponential_().log()
    assert noise.mean() == pytest.approx(0.577, abs=0.03)
    torch.manual_seed(0)
    found = balanced(scores, noise=True)
    assert largest_difference(found, balanced(scores + noise, noise=False)) < 1e-12
    assert largest_difference(found, balanced(scores - noise, noise=False)) > 1e-1


@pytest.mark.parametrize("count", [16, 18])
def test_mean_queries_score_mean_keys_in_the_sorting_without_parameters(count: int) -> None:
    mixer = with_order_one_weights(PooledSinkhornMixer(24, 3, Tokens(1, count, class_token=False), blocks=4)).double()
    x = images(2, count, 24, dtype=torch.float64)
    q, k, _ = mixer.split(x)
    found = mixer.scores(x, mixer.in_blocks(q), mixer.in_blocks(k))
    blocks = torch.arange(count).split(mixer.length)
    expected = torch.zeros(2, 3, 4, 4, dtype=torch.float64)
    for i, asking in enumerate(blocks):
        for j, asked in enumerate(blocks):
            product = (q[:, :, asking].mean(dim=2) * k[:, :, asked].mean(dim=2)).sum(dim=-1)
            expected[:, :, i, j] = product.clamp_min(0) / 8**0.5
    assert largest_difference(found, expected) < 1e-12
    assert largest_difference(1.03 * found, expected) > 1e-3


@pytest.mark.parametrize("count", [16, 18])
def test_two_layers_score_the_places_of_a_block_by_its_mean_token(count: int) -> None:
    mixer = with_order_one_weights(SinkhornMixer(24, 3, Tokens(1, count, class_token=False), blocks=4)).double()
    x = images(2, count, 24, dtype=torch.float64)
    q, k, _ = mixer.split(x)
    found = mixer.scores(x, mixer.in_blocks(q), mixer.in_blocks(k))
    expected = torch.zeros(2, 3, 4, 4, dtype=torch.float64)
    for i, tokens in enumerate(torch.arange(count).split(mixer.length)):
        hidden = (x[:, tokens].mean(dim=1) @ mixer.sort_hidden.weight.T + mixer.sort_hidden.bias).clamp_min(0)
        for head in range(3):
            for place in range(4):
                weight, bias = mixer.sort_places.weight[head, place], mixer.sort_places.bias[head, place]
                expected[:, head, i, place] = (hidden @ weight + bias).clamp_min(0)
    assert largest_difference(found, expected) < 1e-12
    assert largest_difference(1.03 * found, expected) > 1e-3


def test_high_scores_give_a_permutation() -> None:
    wanted = torch.eye(5)[torch.tensor([2, 0, 4, 1, 3])]
    assert torch.allclose(balanced(50 * wanted, noise=False), wanted, atol=1e-6)


def test_sorting_is_noisy_in_training_only() -> None:
    mixer = with_order_one_weights(SinkhornMixer(24, 3, TOKENS))
    x = images(2, TOKENS.count, 24)
    assert not torch.equal(mixer.train()(x), mixer(x))
    assert torch.equal(mixer.eval()(x), mixer(x))


@pytest.mark.parametrize(("count", "blocks", "length"), [(17, 2, 9), (50, 4, 13), (197, 7, 29), (577, 12, 49)])
def test_blocks_grow_with_the_root_of_the_tokens(count: int, blocks: int, length: int) -> None:
    mixer = SinkhornMixer(12, 3, Tokens(1, count - 1, class_token=True))
    assert (mixer.blocks, mixer.length) == (blocks, length)
    assert mixer(images(1, count, 12)).isfinite().all()


def test_weights_go_to_another_image_size() -> None:
    small = favor.create_model("sinkhorn_s16", size=Size(48, 2, 3), img_size=224)
    large = favor.create_model("sinkhorn_s16", size=Size(48, 2, 3), img_size=384)
    loaded = load_weights(large, small.state_dict())
    assert "blocks.0.mixer.sort_places.weight" in loaded.resampled
    assert "blocks.0.mixer.sort_places.bias" in loaded.resampled


def test_the_cait_form_has_the_parameters_of_the_benchmark_and_no_class_token_in_its_blocks() -> None:
    with torch.device("meta"):
        model = favor.create_model("sinkhorn_cait_s16")
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_609_960
    assert model.blocks[0].mixer.tokens == Tokens(14, 14, class_token=False)
    assert (model.blocks[0].mixer.blocks, model.blocks[0].mixer.length) == (7, 28)


def test_the_vit_form_has_vit_s_parameters_and_a_sorting_network_a_block() -> None:
    with torch.device("meta"):
        model = favor.create_model("sinkhorn_s16")
    network = 384 * 384 + 384 + 384 * 6 * 7 + 6 * 7
    assert sum(parameter.numel() for parameter in model.parameters()) == 22_059_496 + 12 * network


def test_class_attention_reads_the_patches() -> None:
    model = with_order_one_weights(favor.create_model("sinkhorn_cait_s16", size=Size(48, 2, 3), img_size=64)).eval()
    x = images(2, 3, 64, 64)
    with torch.no_grad():
        expected = model(x)
        with mutated(model.pool.blocks[0].attention):
            assert largest_difference(model(x), expected) > 1e-3


def test_class_attention_starts_with_the_weights_of_the_shell() -> None:
    torch.manual_seed(0)
    model = favor.create_model("sinkhorn_cait_s16", size=Size(48, 2, 3), img_size=64)
    for linear in (model.blocks[0].mlp.fc1, model.pool.blocks[1].mlp.fc1):
        assert linear.weight.std().item() == pytest.approx(0.02, abs=0.001)
        assert linear.bias.abs().max() == 0
    assert model.pool.class_token.std().item() == pytest.approx(0.02, abs=0.006)
