"""Training loops on shapes: one file a kind of training."""
