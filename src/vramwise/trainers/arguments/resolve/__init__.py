"""Resolves TrainingArguments to settings of a run, one file per section; shared by trainers built on them."""
