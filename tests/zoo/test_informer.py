"""Informer with all queries active is softmax attention; with fewer, the others get the mean value."""

import pytest
import torch

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.zoo.attention import Attention
from favor.zoo.encoder import Size
from favor.zoo.mixing.sparse.informer import AuthorsMixer, InformerMixer
from favor.zoo.slots import Flow, Tokens
from favor.zoo.weights import load_weights

TOKENS = Tokens(4, 4, class_token=True)


def pair(factor: int) -> tuple[InformerMixer, Attention]:
    """An Informer mixer and softmax attention with the same weights of order one."""
    softmax = with_order_one_weights(Attention(24, 3, TOKENS)).double()
    informer = InformerMixer(24, 3, TOKENS, factor=factor).double().eval()
    informer.load_state_dict(softmax.state_dict(), strict=False)
    return informer, softmax


def test_with_all_queries_active_it_is_softmax_attention() -> None:
    informer, softmax = pair(factor=100)
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    assert informer.active == TOKENS.count
    assert largest_difference(informer(x), softmax(x)) < 1e-12
    with mutated(informer):
        assert largest_difference(informer(x), softmax(x)) > 1e-3


def test_active_queries_attend_and_the_others_get_the_mean_value() -> None:
    informer, _ = pair(factor=2)
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    q, k, v = informer.split(x)
    logits = q @ k.transpose(-2, -1) * informer.scale
    sampled = logits[..., (informer.sampled * TOKENS.count).long()]
    rank = (sampled.amax(-1) - sampled.mean(-1)).argsort(dim=-1, descending=True).argsort(dim=-1)
    expected = torch.where((rank < 6)[..., None], logits.softmax(dim=-1) @ v, v.mean(dim=2, keepdim=True))
    assert informer.active == 6
    assert largest_difference(informer.mix(q, k, v), expected) < 1e-12
    assert largest_difference(informer.mix(q, k, 1.03 * v), expected) > 1e-3


@pytest.mark.parametrize(("count", "active"), [(17, 15), (50, 20), (197, 30), (577, 35)])
def test_the_number_of_active_queries_grows_with_the_logarithm(count: int, active: int) -> None:
    mixer = InformerMixer(12, 3, Tokens(1, count - 1, class_token=True))
    assert mixer.active == active
    assert mixer(images(1, count, 12)).isfinite().all()


def test_keys_are_sampled_anew_in_training_only() -> None:
    mixer = InformerMixer(24, 3, TOKENS)
    x = images(2, TOKENS.count, 24)
    before = mixer.sampled.clone()
    mixer.eval()(x)
    assert torch.equal(mixer.sampled, before)
    mixer.train()(x)
    assert not torch.equal(mixer.sampled, before)


def test_weights_go_to_another_image_size_with_the_same_sample_every_time() -> None:
    small = favor.create_model("informer_s16", size=Size(48, 2, 3), img_size=224)
    samples = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        large = favor.create_model("informer_s16", size=Size(48, 2, 3), img_size=384)
        loaded = load_weights(large, small.state_dict())
        assert loaded.resampled == ("positions.weight",)
        assert loaded.drawn == ("blocks.0.mixer.sampled", "blocks.1.mixer.sampled")
        samples.append(large.blocks[0].mixer.sampled)
    assert torch.equal(*samples)
    kept = small.blocks[0].mixer.sampled
    assert torch.equal(samples[0][: len(kept)], kept)
    assert len(samples[0].unique()) == 35
    with torch.no_grad():
        assert large(images(1, 3, 384, 384)).isfinite().all()
    load_weights(small, large.state_dict())
    assert torch.equal(small.blocks[0].mixer.sampled, kept)


def test_it_has_the_parameters_of_vit() -> None:
    for size, expected in {"ti": 5_721_832, "s": 22_059_496, "b": 86_585_320}.items():
        with torch.device("meta"):
            model = favor.create_model(f"informer_{size}16")
        assert sum(parameter.numel() for parameter in model.parameters()) == expected, size


def test_in_the_authors_code_norms_come_after_the_residuals() -> None:
    model = favor.create_model("informer_s16(authors_code=True,factor=100)", size=Size(24, 1, 3), img_size=64).double()
    block = with_order_one_weights(model).blocks[0].eval()
    softmax = Attention(24, 3, model.tokens).double()
    softmax.load_state_dict(block.mixer.state_dict())
    x = images(2, model.tokens.count, 24, dtype=torch.float64)
    y = block.norm1(x + softmax(x))
    expected = block.norm2(y + block.mlp(y))
    assert largest_difference(block(x, Flow()), expected) < 1e-12
    with mutated(softmax):
        assert largest_difference(block.norm1(x + softmax(x)), y) > 1e-3


def test_in_the_authors_code_every_query_draws_its_own_keys_in_every_pass() -> None:
    mixer = with_order_one_weights(AuthorsMixer(24, 3, TOKENS, factor=2)).double().eval()
    x = images(2, TOKENS.count, 24, dtype=torch.float64)
    q, k, v = mixer.split(x)
    torch.manual_seed(0)
    places = torch.randint(TOKENS.count, (TOKENS.count, 6))
    logits = q @ k.transpose(-2, -1)
    sampled = logits.gather(-1, places.expand(*logits.shape[:-1], -1))
    rank = (sampled.amax(-1) - sampled.sum(-1) / TOKENS.count).argsort(dim=-1, descending=True).argsort(dim=-1)
    attended = (logits * mixer.scale).softmax(dim=-1) @ v
    expected = torch.where((rank < 6)[..., None], attended, v.mean(dim=2, keepdim=True))
    torch.manual_seed(0)
    assert largest_difference(mixer.mix(q, k, v), expected) < 1e-12
    assert largest_difference(mixer.mix(q, k, v), expected) > 1e-3, "the next pass draws other keys"
    assert dict(mixer.named_buffers()) == {}
