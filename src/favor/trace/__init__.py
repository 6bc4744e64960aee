"""What a pass does: operator trace, counting rules, counts, and fake tensors on devices that are not here."""
