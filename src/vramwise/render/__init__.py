"""Output: one file a format. Results go to stdout; nothing here decides anything."""
