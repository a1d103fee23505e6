"""What may be changed about a run, and what it would then be: changes, lengths of data, predictions."""
