"""Record what a model's own code allocates, saves and frees by running transformers on fake tensors.

Only this package and `training` import torch. `worker` runs in a child process that `facts.tracing` starts. Nothing
here is loaded unless a model type is unknown.
"""
