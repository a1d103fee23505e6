"""A trainer's config file: reading it with the place of every key, mending it by span, and resolving it to a run."""
