"""Rules of the topic method."""
