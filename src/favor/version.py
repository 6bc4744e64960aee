"""The version, written in this one place."""

__version__ = "0.1.0"
