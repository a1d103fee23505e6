"""The page: the verbs in the user's own browser. `answers` runs there, `serving` serves the files."""
