"""Trainers' keys, looked up one at a time or written as a JSON schema for editors."""
