"""A tiny run on several ranks."""

from supervised_runs import TINY

STEPS = 6
CONFIG = f"""
base_model: {TINY / "model"}
datasets: [{{path: {TINY / "samples.jsonl"}, type: alpaca}}]
sequence_len: 64
pad_to_sequence_len: true
micro_batch_size: 4
gradient_accumulation_steps: 1
max_steps: {STEPS}
save_steps: 1
save_total_limit: 3
optimizer: adamw_torch
learning_rate: 0.003
logging_steps: 1
"""
