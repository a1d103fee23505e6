"""Rules about LLaMA-Factory's own keys, a folder a topic."""
