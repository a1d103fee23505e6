"""Rules: config."""
