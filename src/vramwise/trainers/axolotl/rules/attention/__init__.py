"""Axolotl's own rules: attention."""
