"""The search for the best batch size on curves that are known."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from favor.machine.best_batch import DoesNotFitError, search_best_batch


def saturating(half: float, fall: float = 0.0):
    return lambda batch: 1000 * batch / (batch + half) / (1 + fall * batch)


def best_of_all(curve, largest: int = 4096) -> float:
    return max(curve(batch) for batch in range(1, largest + 1))


@given(half=st.floats(0.1, 300), fall=st.floats(0.0, 0.1), noise=st.floats(0.0, 0.01), seed=st.integers(0, 10**6))
def test_the_winner_is_within_three_percent_of_trying_every_batch_size(half, fall, noise, seed):
    curve, draw = saturating(half, fall), random.Random(seed)  # noqa: S311 - noise, not secrets
    found = search_best_batch(lambda batch: curve(batch) * (1 + draw.uniform(-noise, noise)), largest=4096)
    assert curve(found.best) >= 0.97 * best_of_all(curve)


def test_few_batch_sizes_are_tried():
    tried = []

    def throughput(batch: int) -> float:
        tried.append(batch)
        return saturating(30)(batch)

    search_best_batch(throughput, largest=4096)
    assert len(tried) == len(set(tried)) <= 20


def test_a_best_batch_between_powers_of_two_is_found():
    found = search_best_batch(lambda batch: 100.0 - abs(batch - 24))
    assert found.best == 24
    assert {16, 24, 32} <= {batch for batch, _ in found.curve}


def test_where_memory_ends_the_batch_next_to_the_limit_is_tried():
    found = search_best_batch(float, largest=100)
    assert found.best == 100
    assert found.ended == "memory"


def test_a_batch_that_does_not_fit_ends_the_growing_and_is_approached_from_below():
    def throughput(batch: int) -> float:
        if batch > 50:
            raise DoesNotFitError
        return float(batch)

    found = search_best_batch(throughput)
    assert found.ended == "memory"
    assert 40 <= found.best <= 50
    assert all(batch <= 50 for batch, _ in found.curve)


def test_a_single_image_that_does_not_fit_is_the_callers_error():
    def throughput(batch: int) -> float:
        raise DoesNotFitError

    with pytest.raises(DoesNotFitError):
        search_best_batch(throughput)


def test_a_batch_for_which_there_is_no_time_is_not_tried():
    found = search_best_batch(float, affordable=lambda batch, seconds: batch <= 8)
    assert found.ended == "budget"
    assert found.best == 8


def test_growing_ends_after_two_doublings_without_gain():
    found = search_best_batch(lambda batch: 100.0)
    assert found.ended == "no gain"
    assert max(batch for batch, _ in found.curve) == 4


def test_the_search_starts_at_the_smallest_batch():
    found = search_best_batch(float, smallest=2, largest=12)
    assert found.best == 12
    assert min(batch for batch, _ in found.curve) == 2


def test_one_dip_does_not_end_the_growing():
    found = search_best_batch(lambda batch: 5.0 if batch == 8 else float(batch), largest=64)
    assert found.best == 64


def test_the_curve_is_kept_in_the_order_of_batch_sizes():
    found = search_best_batch(saturating(4), largest=64)
    assert list(found.curve) == sorted(found.curve)
    assert found.curve_text().startswith("1:200 2:333.3 ")
