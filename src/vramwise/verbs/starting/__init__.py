"""The parts of `new`: the plan of a run, its trials, and the text of the config with its comments."""
