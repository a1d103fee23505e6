"""The ghost run: a training run on shapes, which leaves the sequence of allocations that the real one makes."""
