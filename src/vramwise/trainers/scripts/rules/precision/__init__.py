"""Rules of scripts about precision."""
