"""Rules of scripts about config."""
