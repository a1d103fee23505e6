"""Explain an out-of-memory or dtype failure from what it left behind: a log, its config, a memory snapshot.

`read` turns texts and recordings into facts, `causes` ranks possible causes, `advice` says what to change.
"""
