"""Blocks that run as recorded from a model's own code, instead of being written by hand."""
