"""Sequences condensed into new tokens."""
