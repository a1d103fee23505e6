"""Rules: method."""
