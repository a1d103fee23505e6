"""Axolotl's own rules: loss."""
