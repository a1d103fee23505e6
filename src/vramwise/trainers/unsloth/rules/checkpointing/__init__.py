"""Rules of the topic checkpointing."""
