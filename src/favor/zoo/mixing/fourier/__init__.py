"""Mixing in Fourier space."""
