"""Predict what models would cost on a device that you do not have: the operator trace, priced by its specification."""
