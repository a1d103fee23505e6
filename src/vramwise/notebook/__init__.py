"""Results in notebooks: their pages in frames."""
