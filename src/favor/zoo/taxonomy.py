"""Where and how an architecture changes ViT: the two levels of the benchmark's taxonomy.

Paper: Nauen et al., "Which Transformer to Favor", WACV 2025, Figure 2 and section 3.3.

This module imports no torch, so that records and analyses can use it.
"""

from enum import Enum


class Where(Enum):
    """The part of ViT that is changed."""

    BASELINE = ("baseline", "Baseline", "The unchanged models that all others are compared with.")
    TOKEN_MIXING = (
        "token_mixing",
        "Token mixing",
        "Self-attention, whose cost is quadratic in the number of tokens, is approximated, restricted or replaced.",
    )
    TOKEN_SEQUENCE = (
        "token_sequence",
        "Token sequence",
        "Redundant tokens are removed, merged or summarized, so that later blocks process a shorter sequence.",
    )
    MLP_BLOCK = (
        "mlp_block",
        "MLP block",
        "Compute is moved into the MLP, whose cost is linear in the number of tokens.",
    )

    def __init__(self, key: str, title: str, definition: str) -> None:
        self.key = key
        self.title = title
        self.definition = definition


class How(Enum):
    """The strategy of the change; each strategy belongs to one place."""

    BASELINE = ("baseline", "Baseline", Where.BASELINE, "ViT and its successors, and ResNet as the reference CNN.")
    LOW_RANK = (
        "low_rank",
        "Low-Rank Attention",
        Where.TOKEN_MIXING,
        "Exploits the low rank of the attention matrix: keys and values are projected, sampled or transposed.",
    )
    SPARSE = (
        "sparse",
        "Sparse Attention",
        Where.TOKEN_MIXING,
        "Computes only some entries of the attention matrix, by a fixed pattern or by content.",
    )
    FIXED = (
        "fixed",
        "Fixed Attention",
        Where.TOKEN_MIXING,
        "Attention weights depend on positions or on a single token, not on pairs of tokens.",
    )
    KERNEL = (
        "kernel",
        "Kernel Attention",
        Where.TOKEN_MIXING,
        "Replaces the softmax with a product of feature maps, so that keys and values can be summed first.",
    )
    HYBRID = (
        "hybrid",
        "Hybrid Attention",
        Where.TOKEN_MIXING,
        "Combines attention with convolutions, between the blocks or inside the attention.",
    )
    FOURIER = (
        "fourier",
        "Fourier Attention",
        Where.TOKEN_MIXING,
        "Mixes the tokens in Fourier space, using the fast Fourier transform.",
    )
    SHUFFLING = (
        "shuffling",
        "Non-Attention Shuffling",
        Where.TOKEN_MIXING,
        "Mixes the tokens without attention, with fully connected layers, convolutions or modulation.",
    )
    REMOVAL = (
        "removal",
        "Token Removal",
        Where.TOKEN_SEQUENCE,
        "Drops the tokens that matter least to the decision.",
    )
    MERGING = (
        "merging",
        "Token Merging",
        Where.TOKEN_SEQUENCE,
        "Merges tokens that are similar or unimportant.",
    )
    SUMMARY = (
        "summary",
        "Summary Tokens",
        Where.TOKEN_SEQUENCE,
        "Condenses the sequence into a few new tokens.",
    )
    MORE_MLPS = (
        "more_mlps",
        "More MLPs",
        Where.MLP_BLOCK,
        "Adds MLPs: several experts per block, or MLP blocks instead of early attention.",
    )

    def __init__(self, key: str, title: str, where: Where, definition: str) -> None:
        self.key = key
        self.title = title
        self.where = where
        self.definition = definition
