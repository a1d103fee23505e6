"""Variants of a run: changes, the lengths of its data, predictions, and the search among variants."""
