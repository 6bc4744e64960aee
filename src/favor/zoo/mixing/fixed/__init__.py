"""Attention weights that do not depend on pairs of tokens."""
