"""Rules: eval."""
