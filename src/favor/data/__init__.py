"""Datasets by name, augmentations, and the data loader."""
