"""Rules about keys and their values."""
