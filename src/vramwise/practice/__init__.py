"""Search good practice by symptom or keywords: rules, keys and documentation pages, ranked."""
