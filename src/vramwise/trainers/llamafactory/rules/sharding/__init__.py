"""Rules: sharding."""
