"""What `fit` needs, and what other verbs ask of it: ways out, rows that would fit, the largest value of a setting."""
