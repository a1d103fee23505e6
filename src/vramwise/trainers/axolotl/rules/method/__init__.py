"""Axolotl's own rules: method."""
