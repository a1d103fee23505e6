"""Axolotl's own rules: precision."""
