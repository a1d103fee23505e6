"""The fastest variant of a run that fits its card: a search over what may change, each step of it a prediction."""
