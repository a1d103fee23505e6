"""Changes as edits of Axolotl's files: a setting with its new value → edits, in the spelling that the file uses.

One file per topic. Each `SPELLERS` maps a setting to a function that returns edits: none if the file already has the
value, None if another key of the file conflicts with it.
"""

from __future__ import annotations

from vramwise.trainers.axolotl.plugins import LIGER
from vramwise.trainers.axolotl.spell import batch, kernels, method, savings, sharding
from vramwise.trainers.base import Spelling
from vramwise.trainers.spelling import Speller, spell_with
from vramwise.types import Change, RunSpec

_SPELLERS: dict[str, Speller] = {
    **batch.SPELLERS,
    **kernels.SPELLERS,
    **method.SPELLERS,
    **savings.SPELLERS,
    **sharding.SPELLERS,
}


_SMALLER_LIGER = ("liger_rope", "liger_rms_norm", "liger_glu_activation")
_LORA_KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
_RANK = ("lora_r: 16", "lora_alpha: 32", "lora_target_linear: true")
# The lines to write for a change if there is no config.
WORDS: dict[str, tuple[str, ...]] = {
    "smaller-micro-batch": ("micro_batch_size: half of it", "gradient_accumulation_steps: twice as many"),
    "larger-micro-batch": ("micro_batch_size: twice as many", "gradient_accumulation_steps: half of it"),
    "equal-eval-batch": ("eval_batch_size: the value of micro_batch_size",),
    "no-automatic-batch": ("auto_find_batch_size: (remove)", "eval_batch_size: 1"),
    "checkpoint-activations": ("gradient_checkpointing: true",),
    "keep-activations": ("gradient_checkpointing: false", "activation_offloading: (remove)"),
    "offload-activations": ("gradient_checkpointing: true", "activation_offloading: true"),
    "offload-layer-inputs": ("gradient_checkpointing: true", "activation_offloading: hidden_states"),
    "pad-rows": ("pad_to_sequence_len: true",),
    "trim-rows": ("pad_to_sequence_len: (remove)",),
    "shorten-rows": ("sequence_len: half of it",),
    "shorter-rows": ("sequence_len: half of it",),
    "reentrant-checkpointing": ("gradient_checkpointing_kwargs:", "  use_reentrant: true"),
    "legacy-offloading": ("activation_offloading: legacy",),
    "fuse-loss": ("plugins:", f"  - {LIGER}", "liger_fused_linear_cross_entropy: true"),
    "chunk-loss": ("chunked_cross_entropy: true",),
    "plain-loss": ("liger_fused_linear_cross_entropy: (remove)", "chunked_cross_entropy: (remove)"),
    "liger-kernels": ("plugins:", f"  - {LIGER}", *(f"{key}: true" for key in _SMALLER_LIGER)),
    "no-liger-kernels": tuple(f"{key}: false" for key in _SMALLER_LIGER),
    "lora-kernels": tuple(f"{key}: true" for key in _LORA_KERNELS),
    "no-lora-kernels": tuple(f"{key}: false" for key in _LORA_KERNELS),
    "fused-attention": ("attn_implementation: sdpa",),
    "plain-attention": ("attn_implementation: sdpa",),
    "flash-attention": ("attn_implementation: flash_attention_2",),
    "empty-cache-at-eval": ("gc_steps: -1",),
    "fused-optimizer": ("optimizer: adamw_torch_fused",),
    "looped-optimizer": ("optimizer: adamw_torch",),
    "paged-optimizer": ("optimizer: paged_adamw_32bit (or paged_adamw_8bit)",),
    "resident-optimizer": ("optimizer: adamw_bnb_8bit",),
    "eight-bit-optimizer": ("optimizer: adamw_bnb_8bit",),
    "unpaged-optimizer": ("optimizer: adamw_bnb_8bit",),
    "handled-optimizer": ("optimizer: adamw_torch_8bit (or adamw_torch_4bit)",),
    "quantize-experts": ("quantize_moe_experts: true",),
    "train-adapter": ("adapter: lora", *_RANK),
    "quantize-base": ("adapter: qlora", "load_in_4bit: true"),
    "narrower-targets": ("lora_target_linear: false", "lora_target_modules: [q_proj, k_proj, v_proj, o_proj]"),
    "no-evaluation": ('eval_strategy: "no"',),
    "lower-rank": ("lora_r: half of it", "lora_alpha: half of it"),
    "pack-samples": ("sample_packing: true",),
    "compile-model": ("torch_compile: true",),
    "train-in-fp8": ("fp8: true", "torch_compile: true"),
    "train-in-bf16": ("bf16: auto", "fp16: (remove)"),
    "train-in-bf16-with-flash": ("bf16: auto", "attn_implementation: flash_attention_2"),
    "train-without-bf16": ("bf16: false", "fp16: true", "tf32: false"),
    "pad-for-fp8": ("pad_to_sequence_len: true",),
    "second-fsdp": ("fsdp_version: 2",),
    "shard-with-fsdp": ("fsdp_version: 2", "fsdp_config:", "  reshard_after_forward: true"),
    "shard-with-zero": ("deepspeed: deepspeed_configs/zero2.json (or zero1.json, zero3.json)",),
    "shard-checkpoints": ("fsdp_config:", "  state_dict_type: SHARDED_STATE_DICT"),
    "fewer-workers": ("dataloader_num_workers: 1", "dataloader_prefetch_factor: 8"),
}


def spell(run: RunSpec, change: Change) -> Spelling | None:
    """Return the edits for all settings of a change, or None if one of them has no key."""
    spelt = spell_with(_SPELLERS, run, change)
    if spelt is None:
        return None
    fetched = str(change.fields.get("sharding", "")).startswith("zero") and not run.config.get("deepspeed")
    commands = (spelt.command, sharding.FETCH if fetched else "")
    # if two settings set the same key, the later one wins
    edits = {edit.key: edit for edit in spelt.edits}
    return Spelling(edits=tuple(edits.values()), command=" && ".join(filter(None, commands)))
