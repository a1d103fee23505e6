"""Rules: optimizer."""
