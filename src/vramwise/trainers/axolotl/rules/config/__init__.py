"""Axolotl's own rules: config."""
