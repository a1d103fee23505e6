"""Runs only some of a model's identical layers, and copies their events for the others.

`forms` finds identical blocks, `passes` finds the sampled ones among the events, and `expansion` writes the events of
the others. `sampling` combines these, and runs all layers if copying is not possible.
"""
