"""Turn facts into causes, each with its confidence."""
