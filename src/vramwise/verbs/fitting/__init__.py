"""The search behind `fit`, and related questions of other verbs: ways out, row lengths that fit, largest values."""
