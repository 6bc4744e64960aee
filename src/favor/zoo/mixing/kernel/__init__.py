"""Attention by products of feature maps."""
