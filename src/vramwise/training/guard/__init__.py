"""The memory guard: measures, judges and records memory during training."""
