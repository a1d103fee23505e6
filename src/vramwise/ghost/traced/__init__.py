"""Blocks that run from a trace of the model's own code, instead of being written by hand."""
