"""A trainer made up for tests: what a new trainer needs at least."""
