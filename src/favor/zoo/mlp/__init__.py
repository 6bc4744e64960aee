"""Architectures that move compute into the MLP."""
