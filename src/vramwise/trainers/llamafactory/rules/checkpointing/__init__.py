"""Rules: checkpointing."""
