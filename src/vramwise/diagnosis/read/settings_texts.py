"""Settings of the run that its log shows: transformers' announcements, printed configs, model dimensions.

A trainer prints its config as JSON or YAML, transformers announces the batch, model configs are printed as JSON. Only
keys that matter to memory are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramwise.models.stated_counts import base_parameters

_KEYS = (
    *("base_model", "micro_batch_size", "gradient_accumulation_steps", "eval_batch_size", "sequence_len"),
    *("sample_packing", "optimizer", "adapter", "load_in_4bit", "load_in_8bit", "gradient_checkpointing"),
    *("attn_implementation", "pad_to_sequence_len", "bf16", "fp16", "rl", "per_device_train_batch_size"),
    *("per_device_eval_batch_size", "vocab_size", "num_attention_heads", "hidden_size", "intermediate_size"),
    *("num_hidden_layers", "max_seq_length", "max_length", "cutoff_len", "auto_find_batch_size"),
    "activation_offloading",
)
# One pattern per key: a pattern that begins with a plain word is many times faster than an alternation.
_WRITTEN = {
    key: re.compile(rf"{key}[\"']?\s{{0,3}}[:=]\s{{0,3}}[\"']?([\w./\-+]{{1,120}})[\"']?(?=[\s,}})]|$)")
    for key in _KEYS
}
_ANNOUNCED = (
    (re.compile(r"[Bb]atch size per device = ([\d,]{1,12})"), "per_device_train_batch_size"),
    (re.compile(r"Gradient [Aa]ccumulation steps = ([\d,]{1,12})"), "gradient_accumulation_steps"),
    (re.compile(r"Total optimization steps = ([\d,]{1,12})"), "max_steps"),
    (re.compile(r"\bBatch size = ([\d,]{1,12})"), "per_device_eval_batch_size"),
    (re.compile(r"Gradient checkpointing (enabled)"), "gradient_checkpointing"),
    (re.compile(r"trainable params: ([\d,]{1,20}) \|\| all params"), "trainable_params"),
    (re.compile(r"trainable params: [\d,]{1,20} \|\| all params: ([\d,]{1,20})"), "all_params"),
    (re.compile(r"Trainable parameters = ([\d,]{1,20})"), "trainable_params"),
    (re.compile(r"Trainable parameters = [\d,]{1,20} of ([\d,]{1,20})"), "all_params"),
    (
        re.compile(
            r"\b(?:num_local_procs|dist_world_size|Num GPUs|num_processes|nproc_per_node|WORLD_SIZE) ?[=:] ?(\d{1,5})\b"
        ),
        "world_size",
    ),
    (re.compile(r"(PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF)[\"']?\s?[:=]\s?[\"']?([\w:,.\[\]>]{0,200})"), "alloc_conf"),
)
# Synonyms.
_SAME = {
    "per_device_train_batch_size": "micro_batch_size",
    "per_device_eval_batch_size": "eval_batch_size",
    "max_seq_length": "sequence_len",
    "max_length": "sequence_len",
    "cutoff_len": "sequence_len",
}
# Keys that identify the trainer.
_TELLING = ("micro_batch_size", "per_device_train_batch_size", "cutoff_len")
SETTING_WORDS = (
    *(b"batch size", b"Batch size =", b"batch_size", b"optimization steps", b"sequence_len", b"vocab_size", b"_heads"),
    *(b"ALLOC_CONF", b"cutoff_len", b"trainable params", b"Trainable parameters"),
    *(b"num_local_procs", b"world_size=", b"Num GPUs", b"num_processes", b"nproc_per_node", b"WORLD_SIZE"),
    *(b"gradient_checkpointing", b"Gradient checkpointing enabled", b"load_in_4bit", b"load_in_8bit"),
)


def read_settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield the settings a line shows. The ALLOC_CONF advice in an out-of-memory message is not one."""
    if "rainable param" in text and (count := base_parameters(text)) is not None:
        yield "base_parameters", str(count)
    for pattern, name in _ANNOUNCED:
        match = pattern.search(text)
        if match and not (name == "alloc_conf" and "try setting" in text):
            yield _SAME.get(name, name), match[match.re.groups].replace(",", "" if name != "alloc_conf" else ",")
    for key, pattern in _WRITTEN.items():
        if key in text:
            for match in pattern.finditer(text):
                if _begins_word(text, match.start()):
                    yield _SAME.get(key, key), match[1]


def setting_of(key: str) -> str:
    """Return the canonical name of a setting."""
    return _SAME.get(key, key)


def telling_keys(text: str) -> Iterator[str]:
    """Return the keys on a line that identify the trainer."""
    return (
        key
        for key in _TELLING
        if key in text and (found := _WRITTEN[key].search(text)) and _begins_word(text, found.start())
    )


def _begins_word(text: str, at: int) -> bool:
    """Whether a key may begin here: at the start, or after a blank, bracket or comma, quoted or not."""
    if at and text[at - 1] in "\"'":
        at -= 1
    return at == 0 or text[at - 1] in "{,(" or text[at - 1].isspace()
