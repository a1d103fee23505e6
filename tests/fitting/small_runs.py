"""Small subjects to fit: a few layers of a known model, on a card with little memory."""

from dataclasses import replace
from functools import cache

from opened import make_target, subject_of_text
from vramwise.units import GIB
from vramwise.verbs.fitting.fastest import fit_subject as fit

LORA = """\
base_model: meta-llama/Llama-3.2-1B
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
sequence_len: 1024
sample_packing: true
pad_to_sequence_len: true
micro_batch_size: 2
gradient_accumulation_steps: 4
optimizer: adamw_torch
bf16: true
attn_implementation: sdpa
gradient_checkpointing: false
val_set_size: 0
"""
FULL = """\
base_model: Qwen/Qwen2.5-0.5B
sequence_len: 512
micro_batch_size: 4
gradient_accumulation_steps: 2
eval_batch_size: 8
optimizer: adamw_torch_fused
bf16: true
attn_implementation: flash_attention_2
gradient_checkpointing: true
val_set_size: 0.1
"""


def small(text, gib=None, layers=2, gpu="rtx-4090"):
    """The config on a card of which only so much is there, its model cut to some layers."""
    subject = subject_of_text(text, make_target(gpu=gpu))
    model = replace(subject.model, num_hidden_layers=layers)
    card = subject.target.gpu
    subject = replace(subject, model=model)
    if gib is None:
        return subject
    return smaller_card(subject, gib, card)


def smaller_card(subject, gib, card=None):
    """The same on a card that differs in its memory alone."""
    card = card or subject.target.gpu
    target = replace(subject.target, gpu=replace(card, memory_bytes=int(gib * GIB)))
    return subject.changed(target=target, run=replace(subject.run, target=target))


@cache
def fitted(text, gib):
    """The subject and its fit, made once for all tests that ask about it."""
    subject = small(text, gib)
    return subject, fit(subject)


def written(candidate):
    """What a candidate sets, in the trainer's words."""
    return sorted((edit.key, str(edit.value)) for edit in candidate.edits)
