"""Read, replay and write what torch recorded of a run: snapshots and traces, as timelines."""
