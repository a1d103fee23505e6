"""Rules about TRL's own keys, a folder a topic."""
