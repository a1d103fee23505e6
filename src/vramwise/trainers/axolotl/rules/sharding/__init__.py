"""Axolotl's own rules: sharding."""
