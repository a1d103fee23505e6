"""What torch recorded of a run, as a timeline: snapshots and traces are read, replayed and written here."""
