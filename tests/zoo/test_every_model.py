"""What holds for every model of the registry: a new file is tested by being there."""

import fnmatch
from functools import cache

import pytest
import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import nn

import favor
from drop_path import rates
from equality import largest_difference, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.attention import Attention
from favor.zoo.encoder import Encoder, Size
from favor.zoo.fuse import inference_form
from favor.zoo.pools import MeanPool
from favor.zoo.registry import create_miniature
from favor.zoo.training import take_extra_losses
from favor.zoo.weights import weights_to_save

MODELS = favor.list_models()
FAMILIES = {favor.card(name).family: name for name in reversed(MODELS)}
"""Family -> its first model: behavior is tested once a family, on a miniature."""

REFUSE_ANOTHER_IMAGE_SIZE = {"vix_vit"}
"""Its patches grow with the image and belong to one image size."""

families = pytest.mark.parametrize("name", FAMILIES.values(), ids=FAMILIES.keys())


def size_of(name: str) -> int:
    return miniature(name)[1]


@cache
def miniature(name: str) -> tuple[nn.Module, int]:
    """A miniature and the image size that it is built for. Shared between tests, so they leave it as they find it."""
    from favor.zoo.registry import find_entry

    torch.manual_seed(0)
    size = find_entry(name).miniature.get("img_size", favor.card(name).image_sizes.default)
    return create_miniature(name).eval(), int(size)


def batch(name: str, images: int = 2, channels: int = 3, seed: int = 0) -> torch.Tensor:
    side = size_of(name)
    return torch.randn(images, channels, side, side, generator=torch.Generator().manual_seed(seed))


# One of a family: all variants are built and counted in tests/records/test_counts.py.
@families
def test_builds_without_allocating_a_weight(name: str) -> None:
    with torch.device("meta"):
        model = favor.create_model(name)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) > 10_000


@families
def test_gives_finite_logits_of_the_right_shape(name: str) -> None:
    model, _ = miniature(name)
    with torch.no_grad():
        logits = model(batch(name, images=3))
    assert logits.shape == (3, 10)
    assert logits.isfinite().all()
    assert logits.std() > 0


@families
def test_every_parameter_learns_within_three_batches(name: str) -> None:
    torch.manual_seed(0)
    model = create_miniature(name).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    moved: set[str] = set()
    for seed in range(3):
        logits = model(batch(name, images=4, seed=seed))
        loss = nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 3]))
        loss = loss + sum(take_extra_losses(model).values())
        assert loss.isfinite()
        optimizer.zero_grad()
        loss.backward()
        for parameter_name, parameter in model.named_parameters():
            if parameter.grad is not None:
                assert parameter.grad.isfinite().all(), parameter_name
                if parameter.grad.abs().sum() > 0:
                    moved.add(parameter_name)
        optimizer.step()
    idle = [parameter_name for parameter_name, _ in model.named_parameters() if parameter_name not in moved]
    allowed = favor.card(name).idle_parameters
    unexplained = [p for p in idle if not any(fnmatch.fnmatchcase(p, pattern) for pattern in allowed)]
    assert not unexplained


@families
def test_is_deterministic_in_eval(name: str) -> None:
    model, _ = miniature(name)
    with torch.no_grad():
        assert torch.equal(model(batch(name)), model(batch(name)))


def differs_from_alone(model: nn.Module, x: torch.Tensor) -> float:
    """How much an image's logits change by being in a batch, relative to the largest logit."""
    with torch.no_grad():
        together, alone = model(x), torch.cat([model(image[None]) for image in x])
    return largest_difference(together, alone) / float(together.abs().max())


@families
def test_an_image_s_logits_do_not_depend_on_the_others_in_the_batch(name: str) -> None:
    torch.manual_seed(0)
    # at initialization LayerScale would hide a leak
    model = with_order_one_weights(create_miniature(name)).eval()
    assert differs_from_alone(model, batch(name, images=4)) < 1e-3


def test_a_mixer_that_leaks_between_images_would_be_seen() -> None:
    class Leak(Attention):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).mean(dim=0, keepdim=True).expand_as(x)

    model = Encoder(Size(48, 4, 3), num_classes=10, img_size=(64, 64), pool=MeanPool(), mixer=Leak)
    assert differs_from_alone(with_order_one_weights(model).eval(), batch("vit_s16", images=4)) > 1e-2


@families
def test_gives_the_same_logits_after_a_round_trip_through_safetensors(name: str) -> None:
    model, _ = miniature(name)
    saved = save_safetensors(weights_to_save(model))
    torch.manual_seed(1)
    other = create_miniature(name).eval()
    with torch.no_grad():
        assert not torch.equal(other(batch(name)), model(batch(name))), "the weights make no difference"
        favor.load_weights(other, load_safetensors(saved))
        assert torch.equal(other(batch(name)), model(batch(name)))


@families
def test_honours_classes_channels_and_image_size(name: str) -> None:
    card, side = favor.card(name), size_of(name)
    larger = max(2 * side, card.image_sizes.at_least)
    if card.image_sizes.only:
        larger = max(card.image_sizes.only)
    model = create_miniature(name, num_classes=7, in_chans=1, img_size=larger).eval()
    with torch.no_grad():
        assert model(torch.randn(1, 1, larger, larger)).shape == (1, 7)


@families
def test_refuses_no_classes_no_channels_and_no_image(name: str) -> None:
    for request in ({"num_classes": 0}, {"in_chans": 0}, {"img_size": 0}, {"drop_path": 1.0}):
        with pytest.raises(RequestError):
            favor.create_model(name, **request)


@families
def test_no_branch_is_dropped_unless_asked_for(name: str) -> None:
    assert max(rates(miniature(name)[0]), default=0.0) == 0.0


TELLS_PLACES = {"class_token", "positions.weight", "bias.table", "attention_biases"}
"""How the names of parameters end that are a token or say where one is, in our words and in those of timm's we wrap."""


@pytest.mark.parametrize(
    "name",
    [*(name for name in FAMILIES.values() if favor.card(name).origin == "own"), "vix_pit", "efficientformerv2_s0"],
)
def test_class_tokens_and_what_tells_places_are_not_decayed(name: str) -> None:
    model, _ = miniature(name)
    names = {parameter for parameter, _ in model.named_parameters()}
    places = {parameter for parameter in names if any(f".{parameter}".endswith(f".{end}") for end in TELLS_PLACES)}
    exempt = model.no_weight_decay() if hasattr(model, "no_weight_decay") else set()
    assert places <= exempt <= names


@families
def test_a_card_speaks_of_an_inference_form_where_there_is_one(name: str) -> None:
    _, differs = inference_form(miniature(name)[0])
    assert differs == any("`favor.fuse`" in note for note in favor.card(name).notes)


@families
def test_weights_of_a_smaller_image_load_or_are_refused_with_the_reason(name: str) -> None:
    card, side = favor.card(name), size_of(name)
    larger = max(card.image_sizes.only) if card.image_sizes.only else 2 * side
    source, target = miniature(name)[0], create_miniature(name, img_size=larger).eval()
    if name in REFUSE_ANOTHER_IMAGE_SIZE:
        with pytest.raises(RequestError, match="no rule to resample"):
            favor.load_weights(target, weights_to_save(source))
        return
    loaded = favor.load_weights(target, weights_to_save(source))
    state, own = source.state_dict(), target.state_dict()
    fitted = {*loaded.resampled, *loaded.drawn}
    assert fitted == {key for key in own if state[key].shape != own[key].shape}
    assert all(own[key].isfinite().all() for key in fitted)
    copied = [key for key in own if key not in fitted]
    assert all(torch.equal(own[key], state[key]) for key in copied)
