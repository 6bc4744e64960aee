"""Sequences shortened by dropping tokens."""
