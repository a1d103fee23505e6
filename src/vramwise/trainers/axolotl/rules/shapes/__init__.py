"""Axolotl's own rules: shapes."""
