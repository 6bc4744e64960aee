"""Sentences that the cards of several models share, about what the benchmark sets for all of them."""

LAYER_SCALE_SET = "LayerScale 1e-4, at the benchmark's sizes, is the benchmark's setting."
LAYER_SCALE = "LayerScale 1e-4, at the benchmark's sizes, is the benchmark's setting; the authors' code has none."
ON_DEIT = (
    "On DeiT as in the paper: no LayerScale, and the class token has a position. It starts with a deviation of 1e-6, "
    "as our ViT's class token does, where DeiT's starts with 0.02."
)
