"""Training: runs a config with checks, a memory guard and recovery.

`parent` imports no torch: it prepares and supervises. `worker` is the training process. `guard` watches memory in it.
"""
