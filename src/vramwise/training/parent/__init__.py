"""Before and around the training process: prepare, start, watch over, start again. No torch."""
