"""Lengths of samples from the data itself: files → rows → texts → tokens. Reads a bounded part, and says which."""
