"""Rules: attention."""
