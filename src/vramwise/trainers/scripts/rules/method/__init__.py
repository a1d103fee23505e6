"""Rules of scripts about method."""
