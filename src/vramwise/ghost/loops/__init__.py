"""Training loops on shapes: one file per kind of training."""
