"""Logs and snapshots into facts."""
