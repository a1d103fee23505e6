"""Runs inside another trainer's process: its entry, and our guard in every Trainer that it creates."""
