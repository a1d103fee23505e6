"""Rules of the topic config."""
