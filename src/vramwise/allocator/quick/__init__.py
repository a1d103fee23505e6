"""The same allocator for a whole timeline at once: faster, for settings under which the first block that fits is taken.

`shelf` and `allocator` keep the state as plain numbers; `stretches` finds what need not be played; `player` plays.
`caching`, event by event, is what all of it is held against.
"""
