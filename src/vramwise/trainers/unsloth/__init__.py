"""Unsloth: scripts and notebooks that call FastLanguageModel and similar classes, and the YAML of its command."""
