"""What the models learn from: data sets by name, their augmentations, and the loader that hands out batches."""
