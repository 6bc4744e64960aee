"""Mixing without attention."""
