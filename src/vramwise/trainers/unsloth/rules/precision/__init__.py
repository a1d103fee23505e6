"""Rules of the topic precision."""
