"""transformers' own Trainer by its TrainingArguments: `training_args.json`, and the JSON of HfArgumentParser."""
