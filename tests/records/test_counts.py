"""The counts that come with the package: those of the counter, for every model of the zoo."""

import subprocess
import sys

import pytest

from favor.records import counted_records, counted_table
from favor.records.counted import CARD_COLUMNS, COUNTED
from favor.records.schema import Record, from_data, to_data
from favor.trace.counts import count
from favor.zoo.registry import card, list_models


def record_of(name: str) -> Record:
    (record,) = (record for record in counted_records() if record.name == name)
    return record


def test_every_model_of_the_zoo_is_there_once_with_the_fields_of_its_card() -> None:
    ours = [name for name in list_models() if card(name).origin != "plugin"]
    assert sorted(record.name for record in counted_records()) == sorted(ours)
    for record in counted_records():
        known = card(record.name)
        fields = known.as_dict()
        assert {key: getattr(record.model, key) for key in CARD_COLUMNS} == {key: fields[key] for key in CARD_COLUMNS}
        assert record.conditions["img_size"] == known.image_sizes.default


@pytest.mark.parametrize("name", list_models())
def test_a_count_is_that_of_the_counter(name: str) -> None:
    record = record_of(name)
    counts = count(name, img_size=int(record.conditions["img_size"]), num_classes=1000, batch_size=1)
    assert {metric: reading.value for metric, reading in record.metrics.items()} == {
        metric: getattr(counts, metric) for metric in COUNTED
    }


def test_a_count_says_where_it_comes_from_and_what_was_counted() -> None:
    for record in counted_records():
        assert from_data(to_data(record)) == record
        assert (record.task, record.source, record.provenance) == ("count", "measured", {"file": "counts.csv"})
    assert record_of("vit_s16").conditions == {"img_size": 224, "num_classes": 1000, "batch_size": 1}
    assert record_of("vit_s16").metrics["macs_matmul"].value == 4_598_882_304


def test_the_table_of_counts_has_a_row_per_model() -> None:
    table = counted_table()
    assert len(table) == len(counted_records())
    assert table.loc[table["name"] == "vit_s16", "macs_matmul"].tolist() == [4_598_882_304]
    assert table["machine"].isna().all()


def test_the_table_of_counts_needs_no_torch() -> None:
    code = (
        "import sys; from favor.records import counted_table; counted_table(); "
        "assert not {'torch', 'timm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
