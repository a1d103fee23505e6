"""Read logs and snapshots into facts."""
