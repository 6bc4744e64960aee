"""Architectures that change the token mixing."""
