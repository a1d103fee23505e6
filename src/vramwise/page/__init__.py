"""The page: the verbs in the reader's own browser. `answers` is what runs there, `serving` hands the files out."""
