"""Synthesizer, factorized dense: a token's weights are the softmax of an outer product made from that token."""

import pytest
import torch

import favor
from equality import images, largest_difference, mutated, with_order_one_weights
from favor.errors import RequestError
from favor.zoo.encoder import Size
from favor.zoo.mixing.fixed.synthesizer_fd import FactorizedDenseMixer, GridScores
from favor.zoo.slots import Tokens

HEIGHT, WIDTH = 3, 4


@pytest.mark.parametrize("class_token", [True, False])
def test_it_is_the_softmax_of_row_times_column_scores_times_the_values(class_token: bool) -> None:
    tokens = Tokens(HEIGHT, WIDTH, class_token)
    mixer = with_order_one_weights(FactorizedDenseMixer(24, 3, tokens)).double()
    x = images(2, tokens.count, 24, dtype=torch.float64)
    with torch.no_grad():
        v = x @ mixer.value.weight.T + mixer.value.bias
        scores = (x @ mixer.scores.weight.T + mixer.scores.bias).unflatten(-1, (3, -1))
        heads = []
        for head in range(3):
            rows, columns = scores[:, :, head, :HEIGHT], scores[:, :, head, HEIGHT:]
            places = [(row, column) for row in range(HEIGHT) for column in range(WIDTH)]
            places = [(0, WIDTH), *places] if class_token else places
            logits = torch.stack([rows[..., row] * columns[..., column] for row, column in places], dim=-1)
            heads.append(logits.softmax(dim=-1) @ v[..., 8 * head : 8 * head + 8])
        expected = torch.cat(heads, dim=-1) @ mixer.proj.weight.T + mixer.proj.bias
        assert largest_difference(mixer(x), expected) < 1e-12
        with mutated(mixer):
            assert largest_difference(mixer(x), expected) > 1e-3


def test_a_token_s_weights_depend_on_that_token_alone() -> None:
    tokens = Tokens(HEIGHT, WIDTH, class_token=True)
    mixer = with_order_one_weights(FactorizedDenseMixer(24, 3, tokens)).double()
    x = images(1, tokens.count, 24, dtype=torch.float64)
    changed = x.clone()
    changed[:, 5] += 1.0
    difference = (mixer.logits(changed) - mixer.logits(x)).abs().amax(dim=(0, 1, 3))
    assert difference[5] > 1e-2
    assert difference[torch.arange(tokens.count) != 5].max() == 0


def test_its_scores_are_resampled_along_rows_and_columns_and_the_class_token_keeps_its_own() -> None:
    size = Size(48, 2, 3)
    source = with_order_one_weights(favor.create_model("synthesizer_fd_s16", size=size, img_size=(32, 64)))
    ramp = torch.tensor([0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 7.0])  # two rows, four columns, the class token
    with torch.no_grad():
        source.blocks[0].mixer.scores.bias.copy_(ramp.repeat(3))
    target = favor.create_model("synthesizer_fd_s16", size=size, img_size=(64, 128))
    loaded = favor.load_weights(target, source.state_dict(), img_size=(32, 64))
    assert {"blocks.0.mixer.scores.weight", "blocks.0.mixer.scores.bias"} <= set(loaded.resampled)
    resampled = target.blocks[0].mixer.scores.bias.detach().unflatten(0, (3, -1))[1]
    assert resampled[:4].tolist() == [0, 0.25, 0.75, 1]
    assert resampled[4:12].tolist() == [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]
    assert resampled[12] == 7
    old, new = source.blocks[0].mixer.scores.weight, target.blocks[0].mixer.scores.weight
    assert torch.equal(new.unflatten(0, (3, -1))[:, -1], old.unflatten(0, (3, -1))[:, -1])


def test_scores_of_another_aspect_ratio_are_refused() -> None:
    with pytest.raises(RequestError, match="aspect ratio"):
        GridScores(8, 1, Tokens(2, 4, class_token=False)).resample("bias", torch.zeros(7))


def test_parameters_are_those_of_the_benchmark() -> None:
    expected = {"ti": 5_033_980, "s": 19_315_216, "b": 75_622_456}
    for size, count in expected.items():
        with torch.device("meta"):
            model = favor.create_model(f"synthesizer_fd_{size}16")
        assert sum(p.numel() for p in model.parameters()) == count
    assert favor.card("Synthesizer FD-S/16").name == "synthesizer_fd_s16"
