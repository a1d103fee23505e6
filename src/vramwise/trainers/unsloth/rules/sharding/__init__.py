"""Rules of the topic sharding."""
