"""Rules about batches and sizes."""
