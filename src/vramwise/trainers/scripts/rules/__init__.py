"""Rules about what only scripts get wrong, a folder a topic."""
