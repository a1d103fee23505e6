"""Training: run a config with the rules applied, guarded, and recovering.

`parent` imports no torch: it prepares and watches over; `worker` is the training process; `guard` watches memory in it.
"""
