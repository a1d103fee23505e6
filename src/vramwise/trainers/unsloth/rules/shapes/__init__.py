"""Rules of the topic shapes."""
