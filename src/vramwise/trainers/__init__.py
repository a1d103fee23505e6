"""Trainers as rooms: how each one's files are recognised, what its keys mean, and how a change is spelt in them."""
