"""Axolotl: its keys by version, what its runs really do, its own rules, and edits of its files."""
