"""Rules about arguments that every trainer built on TrainingArguments shares, a folder a topic."""
