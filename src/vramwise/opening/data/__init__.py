"""Sample lengths from the data itself: files → rows → texts → tokens. Reads a bounded part, and reports which."""
