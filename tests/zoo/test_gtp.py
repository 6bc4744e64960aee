"""GTP removes 8 tokens a block and hands them on along a graph; removing none it is ViT."""

import pytest
import torch

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.trace.counts import count
from favor.zoo.encoder import Size
from favor.zoo.sequence.merging.gtp import ALPHA, Propagate, RatingAttention, adjacent, importance, token_graph
from favor.zoo.slots import Flow, Seen, Tokens
from tokens import token_counts

SMALL = Size(48, 4, 3)


def test_removing_nothing_is_plain_vit() -> None:
    vit = with_order_one_weights(favor.create_model("vit_s16", size=SMALL, img_size=64).double()).eval()
    gtp = favor.create_model("gtp_s16", size=SMALL, img_size=64, propagated=0).double().eval()
    gtp.load_state_dict(vit.state_dict())
    x = images(2, 3, 64, 64, dtype=torch.float64)
    assert largest_difference(gtp(x), vit(x)) < 1e-10
    with mutated(gtp.blocks[1].mixer.proj):
        assert largest_difference(gtp(x), vit(x)) > 1e-3


def test_every_block_has_eight_tokens_less() -> None:
    model = favor.create_model("gtp_s16", size=Size(48, 12, 3))
    assert token_counts(model.eval(), images(1, 3, 224, 224)) == [197 - 8 * (i + 1) for i in range(12)]


def test_one_patch_stays_at_least() -> None:
    model = favor.create_model("gtp_s16", size=SMALL, img_size=64)
    assert token_counts(model.eval(), images(1, 3, 64, 64)) == [9, 2, 2, 2]


def test_patches_that_touch_are_adjacent() -> None:
    touches = adjacent((3, 4), torch.device("cpu"))
    assert touches[5].nonzero().flatten().tolist() == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert touches[3].nonzero().flatten().tolist() == [2, 3, 6, 7]


def test_the_graph_joins_neighbors_and_similar_patches_and_is_normalized_by_degrees() -> None:
    patches = torch.nn.functional.normalize(images(1, 36, 5, dtype=torch.float64), dim=-1)
    similarity = patches @ patches.transpose(1, 2)
    graph = token_graph(similarity, (6, 6))[0]
    takes = torch.zeros(36, 36, dtype=torch.float64)
    for i in range(36):
        similar = [j for j in similarity[0, i].argsort(descending=True).tolist() if j != i][:8]
        next_to = [j for j in range(36) if j != i and max(abs(i // 6 - j // 6), abs(i % 6 - j % 6)) == 1]
        takes[i, list({*similar, *next_to})] = 1.0
    degree = takes.sum(dim=1)
    expected = takes / (degree[:, None] * degree[None, :]).sqrt()
    assert torch.allclose(graph.T, expected)
    assert not torch.allclose(graph, expected), "similarity ranks are not symmetric"


def test_a_patch_matters_by_its_attention_to_itself_and_the_attention_it_gets() -> None:
    weights = images(2, 3, 5, 5).softmax(dim=-1)
    expected = torch.stack(
        [weights[:, :, i, i].max(dim=1).values * weights[:, :, :, i].sum(dim=2).max(dim=1).values for i in range(1, 5)],
        dim=1,
    )
    assert torch.allclose(importance(weights), expected)


def test_removed_patches_are_handed_on_along_the_graph_over_two_blocks() -> None:
    """Against the paper's formula, X_stay + alpha A X_go, with matrices cut out of the whole graph."""
    tokens = Tokens(3, 3, class_token=True)
    reducer, flow = Propagate(tokens, propagated=2), Flow()
    x = images(1, 10, 4, dtype=torch.float64)
    reducer.build_graph(x, flow)
    takes = flow.notes["graph"][0].T
    sizes, places, y = torch.ones(9, dtype=torch.float64), torch.arange(9), x
    for seed in (5, 6):
        flow.notes["importance"] = images(1, y.shape[1] - 1, seed=seed)
        order = flow.notes["importance"][0].argsort(descending=True)
        stay, go = order[:-2], order[-2:]
        edges = takes[places[stay]][:, places[go]]
        expected = y[0, 1:][stay] + ALPHA * edges @ y[0, 1:][go]
        sizes, places = sizes[stay] + ALPHA * edges @ sizes[go], places[stay]
        class_token = y[0, 0]
        y = reducer.between(y, Seen(keys=y, class_row=None), flow)
        assert torch.equal(y[0, 0], class_token)
        assert torch.allclose(y[0, 1:], expected)
        assert torch.allclose(flow.sizes[0, 1:], sizes)
        assert edges.abs().sum() > 0


def test_attention_weighs_tokens_by_their_size() -> None:
    attention = with_order_one_weights(RatingAttention(24, 3, Tokens(2, 2, class_token=True))).double()
    x = images(1, 5, 24, dtype=torch.float64)
    doubled = torch.cat([x, x[:, 4:]], dim=1)
    sizes = torch.tensor([[1.0, 1.0, 1.0, 1.0, 2.0]], dtype=torch.float64)
    y, _ = attention.attend(x, Flow(sizes=sizes), class_row=False)
    assert torch.allclose(y, attention(doubled)[:, :5], atol=1e-12)
    assert not torch.allclose(attention(x), attention(doubled)[:, :5], atol=1e-3)


def test_a_negative_number_of_tokens_is_refused() -> None:
    with pytest.raises(RequestError, match="propagated of gtp_s16 is a whole number of 0 or more, not -1"):
        favor.create_model("gtp_s16", size=SMALL, propagated=-1)


def test_it_has_no_parameters_of_its_own_and_saves_a_quarter() -> None:
    """The paper: 26 % less for DeiT-S."""
    vit, gtp = count("vit_s16"), count("gtp_s16")
    assert gtp.params == vit.params == 22_059_496
    assert gtp.macs_matmul / vit.macs_matmul == pytest.approx(0.74, abs=0.015)
