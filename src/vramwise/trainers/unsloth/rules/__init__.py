"""Rules about what Unsloth ignores, changes or refuses."""
