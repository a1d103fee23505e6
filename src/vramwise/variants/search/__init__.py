"""The search for the fastest variant of a run that fits its card; each step is a prediction."""
