"""Facts into causes, each with its confidence."""
