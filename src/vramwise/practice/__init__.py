"""Good practice by symptom or words: rules, keys and the pages of the documentation, ranked."""
