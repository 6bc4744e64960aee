"""The spread of metrics over runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from favor.measurement.variability import spreads
from favor.records.schema import CardFields, Record, reading


def run_of(**metrics: float) -> Record:
    readings = {name: reading(name, value, method="test") for name, value in metrics.items()}
    return Record("vit_s16", CardFields(), "inference", "measured", {}, readings)


def test_the_figures_of_the_benchmarks_appendix_follow_from_its_runs():
    # A.4 prints the range 11878 to 11896 as 0.15 % of the mean, and 0.2504 to 0.2670 hours as 6.33 %.
    (throughput,) = spreads([run_of(throughput=value) for value in (11878, 11883, 11887, 11890, 11896)])
    assert round(throughput.range_share, 2) == 0.15
    (hours,) = spreads([run_of(train_hours_per_epoch=value) for value in (0.2504, 0.2644, 0.2670, 0.2670)])
    assert round(hours.range_share, 2) == 6.33


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=10), st.floats(0.1, 100))
def test_shares_do_not_depend_on_the_unit(values, factor):
    (one,) = spreads([run_of(throughput=value) for value in values])
    (scaled,) = spreads([run_of(throughput=value * factor) for value in values])
    assert one.range_share == pytest.approx(scaled.range_share, rel=1e-6, abs=1e-6)
    assert one.deviation_share == pytest.approx(scaled.deviation_share, rel=1e-6, abs=1e-6)


def test_a_metric_that_only_one_run_has_tells_no_spread():
    found = spreads([run_of(throughput=1.0, latency_p50=1.0), run_of(throughput=2.0)])
    assert [spread.metric for spread in found] == ["throughput"]


def test_runs_that_agree_have_no_spread():
    (found,) = spreads([run_of(inference_memory=5.0)] * 3)
    assert (found.range_share, found.deviation_share, found.unit) == (0.0, 0.0, "B")
