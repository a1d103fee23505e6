"""Axolotl's own rules: host."""
