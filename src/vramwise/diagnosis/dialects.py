"""Keys in the words of the trainer that wrote a log, where no config says whose words to use.

A log names its trainer in the paths of its traceback and in the settings it prints. Remedies without a config are
written in the first trainer's keys; these tables turn them into the arguments of transformers and TRL, or into those
of LLaMA-Factory. A line that has no word there is left out, and where none is left, the remedy's title has to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from vramwise.diagnosis.evidence import Frame, LogFacts
from vramwise.trainers.registry import TRAINERS

Dialect = Literal["", "arguments", "llama-factory"]

# Key → key; a line whose key is not here stays as it is.
_ARGUMENTS = {
    "micro_batch_size": "per_device_train_batch_size",
    "eval_batch_size": "per_device_eval_batch_size",
    "sequence_len": "max_length",
    "optimizer": "optim",
}
_KEYS: Mapping[Dialect, Mapping[str, str]] = {
    "arguments": _ARGUMENTS,
    "llama-factory": {**_ARGUMENTS, "sequence_len": "cutoff_len", "attn_implementation": "flash_attn"},
}
# Whole lines that are written otherwise; "": there is no word for it.
_LINES: Mapping[Dialect, Mapping[str, str]] = {
    "arguments": {
        "plugins:": "",
        "liger_fused_linear_cross_entropy: true": "use_liger_kernel: true",
        "gc_steps: -1": "torch_empty_cache_steps: 1",
        "pad_to_sequence_len: true": "",
        "adapter: qlora": "a LoRA adapter (peft)",
        "load_in_4bit: true": "quantization_config: BitsAndBytesConfig(load_in_4bit=True)",
        "activation_offloading: legacy": "",
        "auto_find_batch_size: (remove)": "auto_find_batch_size: false",
        "bf16: auto": "bf16: true",
        "fp16: (remove)": "fp16: false",
    },
    "llama-factory": {
        "plugins:": "",
        "liger_fused_linear_cross_entropy: true": "enable_liger_kernel: true",
        "gc_steps: -1": "torch_empty_cache_steps: 1",
        "pad_to_sequence_len: true": "",
        "adapter: qlora": "finetuning_type: lora",
        "load_in_4bit: true": "quantization_bit: 4",
        "activation_offloading: legacy": "",
        "attn_implementation: flash_attention_2": "flash_attn: fa2",
        "bf16: auto": "bf16: true",
        "fp16: (remove)": "fp16: false",
    },
}
_LLAMA_FACTORY = ("llamafactory", "llama-factory", "llama_factory", "llmtuner")
_PLAIN = ("/transformers/trainer.py", "/trl/trainer/")


def dialect_of(log: LogFacts, frames: Sequence[Frame]) -> Dialect:
    """Whose words a log speaks; "" for the first trainer's, and where nothing says."""
    files = [frame.file.replace("\\", "/").lower() for frame in frames]
    if any(TRAINERS[0].name in file for file in files) or "micro_batch_size" in log.keys_written:
        return ""
    if any(name in file for file in files for name in _LLAMA_FACTORY) or "cutoff_len" in log.keys_written:
        return "llama-factory"
    if any(part in file for file in files for part in _PLAIN) or "per_device_train_batch_size" in log.keys_written:
        return "arguments"
    return ""


def in_words_of(dialect: Dialect, lines: Sequence[str]) -> tuple[str, ...]:
    """Lines of the first trainer's keys in another's words."""
    if not dialect:
        return tuple(lines)
    return tuple(filter(None, (_line(dialect, line) for line in lines)))


def _line(dialect: Dialect, line: str) -> str:
    if line.startswith("  - "):  # an entry of a list of plugins
        return ""
    whole = _LINES[dialect].get(line)
    if whole is not None:
        return whole
    key, colon, value = line.partition(":")
    renamed = _KEYS[dialect].get(key, key)
    for old, new in _ARGUMENTS.items():
        value = value.replace(f"the value of {old}", f"the value of {new}")
    return f"{renamed}{colon}{value}"
