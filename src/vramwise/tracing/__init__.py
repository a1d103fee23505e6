"""Tracing: what a model's own code allocates, saves and frees, recorded from transformers on fake tensors.

The only rooms that import torch are this one and `training`. `worker` runs in a child process; `parent` starts it and
keeps what it finds. Nothing here is loaded unless a model type is unknown.
"""
