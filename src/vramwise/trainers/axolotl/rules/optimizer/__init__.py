"""Axolotl's own rules: optimizer."""
