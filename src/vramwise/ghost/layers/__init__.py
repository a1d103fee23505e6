"""Layers that do the same: some of them run, the others' events are written after theirs.

`forms` tells which blocks are alike, `passes` finds the sampled ones among the events, `expansion` writes the others
in, `sampling` decides, and runs all of them where anything is not as it must be.
"""
