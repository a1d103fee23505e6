"""Trainers' keys, looked up one at a time or written out as a JSON schema for editors."""
