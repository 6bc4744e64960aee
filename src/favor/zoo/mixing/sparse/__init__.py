"""Attention that computes some entries of its matrix."""
