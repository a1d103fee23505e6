"""A log of a run that ended, and its config."""

from failure_logs import (
    CROSS,
    LOSS,
    MODULE,
    STEP,
    TRAIN,
    bar,
    lines,
    oom,
    traceback,
)

CONFIG = """\
base_model: meta-llama/Llama-3.2-1B
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
sample_packing: true
pad_to_sequence_len: true
micro_batch_size: 8
gradient_accumulation_steps: 2
optimizer: adamw_torch_fused
learning_rate: 0.0002
bf16: true
attn_implementation: sdpa
gradient_checkpointing: true
val_set_size: 0.05
"""
CARD = {"total": "24.00 GiB", "used": "23.60 GiB"}
FULL = CONFIG.replace("adapter: lora\n", "").replace("Llama-3.2-1B", "Llama-3.2-3B").replace("size: 8", "size: 1")
FULL = "".join(line for line in FULL.splitlines(keepends=True) if not line.startswith("lora_")).replace("4096", "2048")


def logits_at_first_step():
    figures = oom(
        "15.66 GiB", free="10.40 GiB", allocated="12.70 GiB", pieces="70.00 MiB", **{**CARD, "used": "13.55 GiB"}
    )
    return lines(bar(0, 400), traceback(TRAIN, STEP, LOSS, MODULE, CROSS), figures)
