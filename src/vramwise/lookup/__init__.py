"""What is known about trainers' keys, and the search by symptom over rules, keys and the documentation."""
