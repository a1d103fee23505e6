"""The training process of the embedded engine."""
