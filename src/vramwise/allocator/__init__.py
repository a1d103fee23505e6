"""PyTorch's CUDA caching allocator, simulated: from the requests of a run to the bytes it reserves.

`settings` reads a PYTORCH_*_ALLOC_CONF string, `caching` is the simulator, `run` drives it with a timeline, `snapshot`,
`recording` and `replay` deal with what torch recorded. Nothing here knows models, configs or cards.
"""
