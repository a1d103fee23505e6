"""Axolotl's own rules: batch."""
