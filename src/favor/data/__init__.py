"""Data sets by name, augmentations, and the data loader."""
