"""TrainingArguments → settings of a run, one file a section: what trainers built on them share."""
