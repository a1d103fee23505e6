"""A trainer's config file: reading it with the place of every key, editing it by span, and resolving it to a run."""
