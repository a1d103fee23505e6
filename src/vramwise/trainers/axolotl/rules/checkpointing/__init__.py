"""Axolotl's own rules: checkpointing."""
