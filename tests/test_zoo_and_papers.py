"""The zoo and the papers' tables agree: every row has a model, and records carry what the model's card says."""

import pytest

import favor
from favor.records.published import card_fields, class_sizes, records
from favor.records.schema import CardFields

TABLE_5 = {
    record.provenance["row"]: record.name
    for record in records()
    if record.provenance.get("paper") == "which_transformer_to_favor" and record.provenance.get("table") == "5"
}


def test_all_47_rows_of_table_5_have_a_model_of_their_class() -> None:
    assert len(TABLE_5) == 47
    assert set(TABLE_5.values()) <= set(favor.list_models())
    assert TABLE_5["Synthesizer FR-S/16"] == "synthesizer_fr_s16"
    assert TABLE_5["Hi ViT-Ti/16"] == "hivit_ti16"


@pytest.mark.parametrize("name", card_fields())
def test_a_published_record_carries_the_fields_of_its_model_s_card(name: str) -> None:
    card = favor.card(name)
    assert card_fields()[name] == CardFields(
        family=card.family,
        title=card.title,
        where=card.where.key if card.where else None,
        how=card.how.key if card.how else None,
        year=card.year,
        origin=card.origin,
    )


@pytest.mark.parametrize("size", class_sizes(), ids=lambda size: size.how)
def test_every_class_has_at_least_the_architectures_that_table_7_counts(size: object) -> None:
    families = {favor.card(name).family for name in favor.list_models(how=size.how)}
    assert len(families) >= size.architectures
