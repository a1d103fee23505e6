"""Axolotl's own rules: eval."""
