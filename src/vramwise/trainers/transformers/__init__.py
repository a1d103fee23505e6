"""The plain Trainer of transformers, as the embedded engine of `vramwise train` runs it."""
