"""Attention that uses the low rank of its matrix."""
