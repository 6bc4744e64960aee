"""Architectures that shorten the token sequence."""
