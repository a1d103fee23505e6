"""Axolotl's own rules, a folder a topic: a new rule is one file."""
