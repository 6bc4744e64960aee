"""Reformer with one bucket is attention with unit keys and a masked diagonal; with more, buckets are on their own."""

import pytest
import torch
import torch.nn.functional as F

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.encoder import Size
from favor.zoo.mixing.sparse.reformer import ReformerMixer, hash_directions
from favor.zoo.slots import Tokens
from favor.zoo.weights import load_weights

TOKENS = Tokens(4, 4, class_token=True)


def masked_attention(mixer: ReformerMixer, x: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Attention with shared queries and unit keys where `allowed`, to itself only where there is nothing else."""
    q, _, v = mixer.split(x)
    logits = q @ F.normalize(q, dim=-1).transpose(-2, -1) * mixer.scale
    itself = torch.eye(x.shape[1], dtype=torch.bool)
    others = allowed & ~itself
    allowed = torch.where(others.any(dim=-1, keepdim=True), others, itself)
    return mixer.proj(mixer.join(logits.masked_fill(~allowed, -torch.inf).softmax(dim=-1) @ v))


def met_in_any_round(mixer: ReformerMixer, q: torch.Tensor) -> torch.Tensor:
    """Pairs that are in one bucket, and in one chunk or the next, in some round; by loops."""
    met = torch.zeros(*q.shape[:2], q.shape[2], q.shape[2], dtype=torch.bool)
    for image in range(q.shape[0]):
        for head in range(q.shape[1]):
            for number in range(mixer.rounds):
                products = q[image, head] @ mixer.rotations[:, number].to(q.dtype)
                buckets = [tuple(_hash(products[token], mixer.directions)) for token in range(q.shape[2])]
                order = sorted(range(q.shape[2]), key=lambda token: (buckets[token], token))
                chunk = {token: slot // mixer.length for slot, token in enumerate(order)}
                for i in range(q.shape[2]):
                    for j in range(q.shape[2]):
                        near = chunk[i] - chunk[j] in (0, 1)
                        met[image, head, i, j] |= near and buckets[i] == buckets[j]
    return met


def _hash(products: torch.Tensor, directions: list[int]) -> list[int]:
    return [int(torch.cat([part, -part]).argmax()) for part in products.split(directions)]


@pytest.mark.parametrize("scale", [1, 30, 100, 1000])
def test_one_bucket_is_attention_with_unit_keys_and_a_masked_diagonal_however_long_the_queries_are(scale: int) -> None:
    mixer = with_order_one_weights(ReformerMixer(24, 3, TOKENS, chunk=TOKENS.count, buckets=1)).double().eval()
    x = scale * images(2, TOKENS.count, 24, dtype=torch.float64)
    expected = masked_attention(mixer, x, torch.ones(TOKENS.count, TOKENS.count, dtype=torch.bool))
    assert largest_difference(mixer(x), expected) < 1e-12 * scale
    with mutated(mixer):
        assert largest_difference(mixer(x), expected) > 1e-3


@pytest.mark.parametrize("scale", [1, 100])
@pytest.mark.parametrize(
    ("chunk", "buckets", "rounds"), [(6, None, 1), (6, None, 3), (5, 32, 2), (4, 2, 8), (4, 64, 2), (17, 2, 2)]
)
def test_a_token_attends_once_to_each_token_it_meets_in_any_round(
    chunk: int, buckets: int | None, rounds: int, scale: int
) -> None:
    torch.manual_seed(0)
    mixer = ReformerMixer(24, 3, TOKENS, chunk=chunk, buckets=buckets, rounds=rounds)
    with_order_one_weights(mixer).double().eval()
    x = scale * images(2, TOKENS.count, 24, dtype=torch.float64)
    met = met_in_any_round(mixer, mixer.split(x)[0])
    assert not met.all(), "hashing leaves pairs out"
    assert largest_difference(mixer(x), masked_attention(mixer, x, met)) < 1e-10 * scale
    with mutated(mixer):
        assert largest_difference(mixer(x), masked_attention(mixer, x, met)) > 1e-3


@pytest.mark.parametrize(
    ("count", "chunks", "length", "directions"),
    [(17, 1, 17, [1]), (50, 1, 50, [1]), (197, 4, 50, [4]), (577, 10, 58, [8, 1]), (3137, 50, 63, [8, 4])],
)
def test_chunks_are_of_equal_length_and_hold_two_buckets(
    count: int, chunks: int, length: int, directions: list[int]
) -> None:
    mixer = ReformerMixer(12, 3, Tokens(1, count - 1, class_token=True))
    assert (mixer.chunks, mixer.length, mixer.directions) == (chunks, length, directions)
    assert mixer(images(1, count, 12)).isfinite().all()


@pytest.mark.parametrize("scale", [1, 100])
def test_gradients_are_those_of_the_masked_attention(scale: int) -> None:
    torch.manual_seed(0)
    mixer = with_order_one_weights(ReformerMixer(24, 3, TOKENS, chunk=6, rounds=3)).double().eval()
    x = (scale * images(2, TOKENS.count, 24, dtype=torch.float64)).requires_grad_()
    met = met_in_any_round(mixer, mixer.split(x)[0].detach())
    weights = images(2, TOKENS.count, 24, seed=5, dtype=torch.float64)
    (found,) = torch.autograd.grad((mixer(x) * weights).sum(), x)
    (expected,) = torch.autograd.grad((masked_attention(mixer, x, met) * weights).sum(), x)
    assert largest_difference(found, expected) < 1e-10
    assert largest_difference(1.03 * found, expected) > 1e-3


def test_padding_gets_no_gradient_and_gives_none() -> None:
    mixer = with_order_one_weights(ReformerMixer(24, 3, TOKENS, chunk=6))
    assert mixer.padding == 1
    x = images(2, TOKENS.count, 24).requires_grad_()
    mixer(x).square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_hashing_is_redrawn_in_training_only() -> None:
    mixer = ReformerMixer(24, 3, TOKENS, chunk=6)
    x = images(2, TOKENS.count, 24)
    before = mixer.rotations.clone()
    mixer.eval()(x)
    assert torch.equal(mixer.rotations, before)
    mixer.train()(x)
    assert not torch.equal(mixer.rotations, before)


def test_many_buckets_are_a_product_of_hashes_and_others_are_refused() -> None:
    assert hash_directions(1) == []
    assert hash_directions(512) == [8, 8, 1]
    with pytest.raises(RequestError, match="power of two"):
        ReformerMixer(24, 3, TOKENS, buckets=6)


def test_weights_go_to_another_image_size_with_the_same_directions_every_time() -> None:
    small = favor.create_model("reformer_s16", size=Size(48, 2, 3), img_size=224)
    rotations = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        large = favor.create_model("reformer_s16", size=Size(48, 2, 3), img_size=384)
        loaded = load_weights(large, small.state_dict())
        assert loaded.drawn == ("blocks.0.mixer.rotations", "blocks.1.mixer.rotations")
        assert "what is missing drawn anew: blocks.0.mixer.rotations, blocks.1.mixer.rotations" in str(loaded)
        rotations.append(large.blocks[0].mixer.rotations)
    assert torch.equal(*rotations)
    kept = small.blocks[0].mixer.rotations
    assert torch.equal(rotations[0][..., : kept.shape[-1]], kept)
    assert rotations[0][..., kept.shape[-1] :].std() == pytest.approx(1, abs=0.2)
    load_weights(small, large.state_dict())
    assert torch.equal(small.blocks[0].mixer.rotations, kept)


def test_it_has_the_parameters_of_the_benchmark() -> None:
    for name, expected in {"reformer_ti16": 5_277_160, "reformer_s16": 20_285_416, "reformer_b16": 79_498_216}.items():
        with torch.device("meta"):
            model = favor.create_model(name)
        assert sum(parameter.numel() for parameter in model.parameters()) == expected, name
