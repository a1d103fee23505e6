"""Simulates PyTorch's CUDA caching allocator: from the requests of a run to the bytes that it reserves.

`settings` reads a PYTORCH_*_ALLOC_CONF string, `caching` is the simulator, and `run` plays a timeline into it. Nothing
here depends on models, configs or GPUs.
"""
