"""A faster version of the same allocator, for settings under which the first block that fits is always taken.

`shelf` and `allocator` keep the state as plain numbers. `stretches` finds the events that need not be played, and
`player` plays the rest. The results must equal those of `caching`, which plays event by event.
"""
