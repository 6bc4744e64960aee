"""What models would cost on a device that is not here: the operator trace, priced on the device's specification."""
