"""Sequences shortened by merging tokens."""
