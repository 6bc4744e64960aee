"""Sentences that the cards of several models share, about what the benchmark sets for all of them."""

LAYER_SCALE_SET = "At the benchmark's sizes LayerScale starts at 1e-4, the benchmark's setting."
LAYER_SCALE = "At the benchmark's sizes LayerScale starts at 1e-4, the benchmark's setting; the authors' code has none."
ON_DEIT = (
    "Built on DeiT, as in the paper: no LayerScale, and the class token has a position. The class token starts with a "
    "standard deviation of 1e-6, like our ViT's; DeiT's starts with 0.02."
)
