"""Unsloth: scripts and notebooks that call FastLanguageModel and its kin, and the YAML of its command."""
