"""Rules of scripts about sharding."""
