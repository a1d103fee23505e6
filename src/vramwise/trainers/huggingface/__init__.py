"""transformers' own Trainer, from its TrainingArguments: `training_args.json`, and the JSON of HfArgumentParser."""
