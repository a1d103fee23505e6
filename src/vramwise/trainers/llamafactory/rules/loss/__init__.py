"""Rules: loss."""
