"""Fuzzers: hostile inputs through the real command line, in-process. `python -m tests.fuzz.run --help`."""
