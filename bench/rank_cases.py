"""The sharded runs that `zero_rank.py` measures and predicts: one rank of several, small enough for one card."""

from __future__ import annotations

from typing import Any

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "hidden_size": 512,
        "intermediate_size": 1376,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "vocab_size": 32000,
        "tie_word_embeddings": False,
    },
    # 1 : 64 of the 8b shape with 8 layers, for the CPU
    "8b, 1:64": {
        "hidden_size": 512,
        "intermediate_size": 1792,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 16032,
        "tie_word_embeddings": False,
    },
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
    },
    "8b, 8 layers": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 8,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    },
}

# DeepSpeed's sections as Axolotl ships them for each stage, and as the documentation of transformers writes stage 3
SHIPPED: dict[int, dict[str, Any]] = {
    1: {"overlap_comm": True},
    2: {"overlap_comm": True, "contiguous_gradients": True},
    3: {
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": 0,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "max_live_parameters": 0,
        "max_reuse_distance": 0,
    },
}
LOOSE = {
    "overlap_comm": True,
    "contiguous_gradients": True,
    "sub_group_size": 1e9,
    "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto",
    "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9,
}
# the defaults for the 8b shape, 1 : 64
SCALED = {
    "overlap_comm": True,
    "contiguous_gradients": True,
    "sub_group_size": 0,
    "reduce_bucket_size": 262144,
    "stage3_prefetch_bucket_size": 235929,
    "stage3_param_persistence_threshold": 640,
    "stage3_max_live_parameters": 15625000,
    "stage3_max_reuse_distance": 15625000,
}
OFFLOAD = {"device": "cpu"}


def _zero(name: str, stage: int, **changes: Any) -> dict[str, Any]:
    made = {"name": name, "kind": "zero", "stage": stage, "zero": SHIPPED[stage], "ranks": 8}
    return made | changes


def _fsdp(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "kind": "fsdp2", "style": "axolotl", "ranks": 8} | changes


_DEFAULTS: dict[str, Any] = {
    "shape": "1b",
    "lora": False,
    "rank": 16,
    "quantised": False,
    "checkpointing": None,
    "optimizer": "adamw_torch_fused",
    "accumulation": 1,
    "rows": 1,
    "width": 1024,
    "steps": 4,
}
_AUTO = {"reduce_bucket_size": "auto"}
_LORA = {"lora": True, "shape": "8b, 8 layers"}
_CHECKPOINTED = {"checkpointing": "reentrant"}

CASES: list[dict[str, Any]] = [
    _DEFAULTS | case
    for case in (
        _zero("z1-one-rank", 1, ranks=1),
        _zero("z1", 1),
        _zero("z1-8bit-acc", 1, optimizer="adamw_bnb_8bit", accumulation=3, **_CHECKPOINTED),
        _zero("z1-no-overlap", 1, zero={"overlap_comm": False, **_AUTO}),
        _zero("z2-one-rank-8bit", 2, ranks=1, optimizer="adamw_bnb_8bit"),
        _zero("z2", 2, zero=SHIPPED[2] | _AUTO),
        _zero("z2-foreach-acc", 2, optimizer="adamw_torch", accumulation=3, zero=SHIPPED[2] | _AUTO),
        _zero("z2-paged", 2, optimizer="paged_adamw_8bit", zero=SHIPPED[2] | _AUTO),
        _zero("z2-lora", 2, **_LORA),
        _zero("z2-offload", 2, zero=SHIPPED[2] | _AUTO | {"offload_optimizer": OFFLOAD}),
        _zero("z2-offload-acc", 2, accumulation=3, zero=SHIPPED[2] | _AUTO | {"offload_optimizer": OFFLOAD}),
        _zero("z3-one-rank", 3, ranks=1),
        _zero("z3", 3),
        _zero("z3-8bit-checkpointed", 3, optimizer="adamw_bnb_8bit", **_CHECKPOINTED),
        _zero("z3-loose", 3, zero=LOOSE),
        _zero("z3-loose-checkpointed", 3, zero=LOOSE, shape="8b, 8 layers", **_CHECKPOINTED),
        _zero("z3-lora", 3, **_LORA),
        _zero("z3-lora-checkpointed", 3, **_LORA, **_CHECKPOINTED),
        _zero("z3-lora-loose", 3, zero=SCALED, shape="8b, 1:64", lora=True, rank=2, ranks=2, width=32, **_CHECKPOINTED),
        _zero("z3-offload", 3, zero=SHIPPED[3] | {"offload_optimizer": OFFLOAD, "offload_param": OFFLOAD}),
        _zero("z3-offload-params", 3, zero=SHIPPED[3] | {"offload_param": OFFLOAD}),
        _fsdp("f2"),
        _fsdp("f2-checkpointed-acc", accumulation=3, **_CHECKPOINTED),
        _fsdp("f2-kept", keep=True),
        _fsdp("f2-offload", offload=True),
        _fsdp("f2-lora", **_LORA),
        _fsdp("f2-lora-checkpointed", **_LORA, **_CHECKPOINTED),
        _fsdp("f2-qlora-checkpointed", **_LORA, **_CHECKPOINTED, quantised=True),
        _fsdp("f2-lora-0.21", style="axolotl 0.21", **_LORA),
        _fsdp("f2-lora-0.21-checkpointed", style="axolotl 0.21", **_LORA, **_CHECKPOINTED),
        _fsdp("f2-qlora-0.21", style="axolotl 0.21", **_LORA, **_CHECKPOINTED, quantised=True),
        _fsdp("f2-accelerate", style="accelerate"),
        {"name": "ddp-one-rank", "kind": "ddp", "ranks": 1},
        {"name": "ddp-lora-one-rank", "kind": "ddp", "ranks": 1, **_LORA},
    )
]


def zero_section(case: dict[str, Any]) -> dict[str, Any]:
    """The case's `zero_optimization`, its `auto` values filled as transformers fills them."""
    hidden = SHAPES[case["shape"]]["hidden_size"]
    auto = {
        "reduce_bucket_size": hidden * hidden,
        "stage3_prefetch_bucket_size": int(0.9 * hidden * hidden),
        "stage3_param_persistence_threshold": 10 * hidden,
    }
    filled = {key: auto[key] if value == "auto" else value for key, value in case["zero"].items()}
    return {"stage": case["stage"]} | filled


def deepspeed_config(case: dict[str, Any]) -> dict[str, Any]:
    """The whole DeepSpeed config of a case, as transformers hands it over."""
    return {
        "zero_optimization": zero_section(case),
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "gradient_accumulation_steps": case["accumulation"],
        "train_micro_batch_size_per_gpu": case["rows"],
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
