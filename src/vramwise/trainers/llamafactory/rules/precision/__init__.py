"""Rules: precision."""
