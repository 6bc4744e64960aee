"""Attention combined with convolutions."""
