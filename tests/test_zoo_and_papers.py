"""The zoo and the papers' tables agree: every row has a model, and records carry what the model's card says."""

import pytest
import torch

import favor
from drop_path import rates
from favor.records.published import card_fields, class_sizes, records
from favor.records.schema import CardFields
from favor.zoo.taxonomy import How

TABLE_5 = {
    "ViT-S/16": ("vit_s16", How.BASELINE),
    "ViT-Ti/16": ("vit_ti16", How.BASELINE),
    "ViT-B/16": ("vit_b16", How.BASELINE),
    "DeiT-S/16": ("deit_s16", How.BASELINE),
    "ResNet50": ("resnet50", How.BASELINE),
    "Nystrom ViT-64-S/16": ("nystrom64_s16", How.LOW_RANK),
    "Nystrom ViT-32-S/16": ("nystrom32_s16", How.LOW_RANK),
    "Linformer-S/16": ("linformer_s16", How.LOW_RANK),
    "XCiT-S-12/16": ("xcit_s12_p16", How.LOW_RANK),
    "SwinV2-Ti-W7/4": ("swinv2_ti", How.SPARSE),
    "Swin-Ti-W7/4": ("swin_ti", How.SPARSE),
    "Swin-S-W7/4": ("swin_s", How.SPARSE),
    "Sinkhorn Cait-S-Bmax-32/16": ("sinkhorn_cait_s16", How.SPARSE),
    "Routing ViT-S/16": ("routing_s16", How.SPARSE),
    "WaveViT-S": ("wavevit_s", How.SPARSE),
    "Informer-S/16": ("informer_s16", How.SPARSE),
    "Synthesizer FD-S/16": ("synthesizer_fd_s16", How.FIXED),
    "Synthesizer FR-S/16": ("synthesizer_fr_s16", How.FIXED),
    "PolySA-S/16": ("polysa_s16", How.KERNEL),
    "SLAB-S/16": ("slab_s16", How.KERNEL),
    "Hydra-S/16": ("hydra_s16", How.KERNEL),
    "EfficientFormerV2-S0": ("efficientformerv2_s0", How.HYBRID),
    "CvT-13": ("cvt_13", How.HYBRID),
    "CoaT-Ti": ("coat_ti", How.HYBRID),
    "Efficient ViT-B-2": ("efficientvit_b2", How.HYBRID),
    "NextViT-S": ("nextvit_s", How.HYBRID),
    "ResT-S": ("rest_s", How.HYBRID),
    "Mixer-S/16": ("mixer_s16", How.SHUFFLING),
    "FocalNet-S-Srf": ("focalnet_s", How.SHUFFLING),
    "FocalNet-Ti-Srf": ("focalnet_ti", How.SHUFFLING),
    "SwiftFormer": ("swiftformer_s", How.SHUFFLING),
    "FastViT-12": ("fastvit_s12", How.SHUFFLING),
    "Efficient Mod-S": ("efficientmod_s", How.SHUFFLING),
    "FNet-S/16": ("fnet_s16", How.FOURIER),
    "GFNet-S/16": ("gfnet_s16", How.FOURIER),
    "AFNO-S/16": ("afno_s16", How.FOURIER),
    "AFNO-Ti/16": ("afno_ti16", How.FOURIER),
    "EViT-S/16": ("evit_s16", How.REMOVAL),
    "Dynamic ViT-S/16": ("dynamicvit_s16", How.REMOVAL),
    "EViT Fuse-S/16": ("evit_fuse_s16", How.MERGING),
    "ToMe-S-R-8/16": ("tome_r8_s16", How.MERGING),
    "Token Learner-8-75-S/16": ("tokenlearner_8_75_s16", How.SUMMARY),
    "Token Learner-8-50-S/16": ("tokenlearner_8_50_s16", How.SUMMARY),
    "STViT-Swin-Ti-W-7/4": ("stvit_swin_ti", How.SUMMARY),
    "CaiT-S-24": ("cait_s24", How.SUMMARY),
    "Switch ViT-8-S/16": ("switch_8_s16", How.MORE_MLPS),
    "Hi ViT-Ti/16": ("hivit_ti16", How.MORE_MLPS),
}
"""The paper's rows in its order, each with our model and the class that the paper puts it into."""

MODELS_OF_TABLE_5 = [name for name, _ in TABLE_5.values()]


def test_all_47_rows_of_table_5_have_a_model_of_their_own_and_of_their_class() -> None:
    assert len(TABLE_5) == len(set(MODELS_OF_TABLE_5)) == 47
    assert {row: favor.card(name).how for row, (name, _) in TABLE_5.items()} == {
        row: how for row, (_, how) in TABLE_5.items()
    }


def test_the_rows_of_table_5_lead_to_their_models_as_names() -> None:
    assert {row: favor.card(row).name for row in TABLE_5} == {row: name for row, (name, _) in TABLE_5.items()}


def test_the_published_records_of_table_5_name_the_same_models() -> None:
    recorded = {
        record.provenance["row"]: record.name
        for record in records()
        if record.provenance.get("paper") == "which_transformer_to_favor" and record.provenance.get("table") == "5"
    }
    assert recorded == {row: name for row, (name, _) in TABLE_5.items()}


@pytest.mark.parametrize("name", MODELS_OF_TABLE_5)
def test_every_model_of_table_5_trains_with_drop_path(name: str) -> None:
    with torch.device("meta"):
        assert max(rates(favor.create_model(name, drop_path=0.3))) == pytest.approx(0.3)


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
