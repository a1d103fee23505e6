"""The trainers: how each one's files are recognised, what their keys mean, and how changes become edits of them."""
