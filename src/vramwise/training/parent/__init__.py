"""Around the training process: prepare, start, supervise, restart. No torch."""
