"""Cases that record one step of every family that no recorded run had, with what is predicted of them beforehand.

Random weights, a few layers, real orders of size; full fine-tuning as it is, and LoRA under checkpointing. On the card,
with transformers 5.20.1, torch 2.11 and peft 0.21, and without flash-linear-attention and mamba-ssm:

    python tests/measured/family_cases.py OUT               # writes OUT/cases.jsonl and OUT/predicted.jsonl (no torch needed)
    python bench/measure.py OUT/cases.jsonl OUT --jobs 4
    python tests/measured/accuracy.py OUT/measured.jsonl    # predicted against measured

`predicted.jsonl` is to be written, and kept, before the runs: {"name", "allocated_mib", "reserved_mib"} a line. Where
`flash-linear-attention` is installed on the card its kernels run: then the cases of qwen3_5, qwen3_next and kimi_linear
are to be predicted with `--fla`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(Path(__file__).parent), str(HERE), str(HERE.parent / "src")]

from accuracy import predict  # noqa: E402
from truth import Case, _case  # noqa: E402
from vramwise.allocator.run import simulate  # noqa: E402
from vramwise.allocator.settings import parse_settings  # noqa: E402
from vramwise.types import Origin, Release, Stack  # noqa: E402

MIB = 1024**2
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SIZES = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 6,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    **_TOKENS,
}
_LINEAR = {
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "head_dim": 128,
}
_EXPERTS = {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 512}
_SHARED = {**_EXPERTS, "shared_expert_intermediate_size": 512}
_LATENT = {
    "num_key_value_heads": 16,
    "kv_lora_rank": 256,
    "q_lora_rank": 384,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}
_DEEPSEEK = {
    **_LATENT,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 512,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
_MAMBA = {"mamba_n_heads": 32, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128}
_HYBRID = ["mamba", "mamba", "attention"] * 2
_KDA = {
    "head_dim": 128,
    "num_heads": 16,
    "short_conv_kernel_size": 4,
    "full_attn_layers": [4],
    "kda_layers": [1, 2, 3, 5, 6],
}
_GEMMA4 = {"head_dim": 128, "global_head_dim": 256}

MODELS: dict[str, dict[str, Any]] = {
    "qwen3_5": {"model_type": "qwen3_5_text", **_LINEAR},
    "qwen3_5_moe": {"model_type": "qwen3_5_moe_text", **_LINEAR, **_SHARED},
    "qwen3_next": {"model_type": "qwen3_next", **_LINEAR, **_SHARED},
    "deepseek_v3": {"model_type": "deepseek_v3", **_DEEPSEEK},
    "deepseek_v2": {"model_type": "deepseek_v2", **_DEEPSEEK, "q_lora_rank": None},
    "glm4_moe_lite": {"model_type": "glm4_moe_lite", **_DEEPSEEK},
    "falcon_h1": {"model_type": "falcon_h1", **_MAMBA, "mamba_d_ssm": 2048, "head_dim": 64},
    "granite_hybrid": {
        "model_type": "granitemoehybrid",
        **_MAMBA,
        "num_local_experts": 16,
        "num_experts_per_tok": 4,
        "intermediate_size": 512,
        "shared_intermediate_size": 1024,
        "layer_types": _HYBRID,
    },
    "nemotron_h": {
        "model_type": "nemotron_h",
        "mamba_num_heads": 32,
        "mamba_head_dim": 64,
        "ssm_state_size": 128,
        "n_groups": 2,
        "n_routed_experts": 16,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 512,
        "moe_shared_expert_intermediate_size": 1024,
        "hybrid_override_pattern": "ME*-ME",
        "head_dim": 64,
    },
    "jamba": {
        "model_type": "jamba",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "attn_layer_period": 3,
        "attn_layer_offset": 2,
    },
    "lfm2": {"model_type": "lfm2", "full_attn_idxs": [2, 5]},
    "lfm2_moe": {"model_type": "lfm2_moe", **_EXPERTS, "layer_types": ["conv", "conv", "full_attention"] * 2},
    "llama4": {
        "model_type": "llama4_text",
        "head_dim": 64,
        "num_local_experts": 4,
        "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 4096,
        "intermediate_size": 2048,
    },
    "gemma4": {
        "model_type": "gemma4_text",
        **_GEMMA4,
        "hidden_size_per_layer_input": 128,
        "vocab_size_per_layer_input": 32000,
    },
    "gemma4_moe": {
        "model_type": "gemma4_text",
        **_GEMMA4,
        "hidden_size_per_layer_input": 0,
        "enable_moe_block": True,
        "num_experts": 16,
        "top_k_experts": 4,
        "moe_intermediate_size": 512,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 2,
    },
    "gemma3n": {
        "model_type": "gemma3n_text",
        "head_dim": 64,
        "num_kv_shared_layers": 1,
        "vocab_size_per_layer_input": 32000,
        "hidden_size_per_layer_input": 128,
    },
    "afmoe": {"model_type": "afmoe", **_EXPERTS, "head_dim": 64, "num_shared_experts": 1, "num_dense_layers": 2},
    "kimi_linear": {
        "model_type": "kimi_linear",
        **_LATENT,
        "q_lora_rank": None,
        "num_experts": 16,
        "num_experts_per_token": 4,
        "moe_intermediate_size": 512,
        "num_shared_experts": 1,
        "first_k_dense_replace": 1,
        "linear_attn_config": _KDA,
    },
    "gptj": {"model_type": "gptj", "n_embd": 1024, "n_layer": 6, "n_head": 16, "n_positions": 4096, "rotary_dim": 64},
    "nemotron": {"model_type": "nemotron", "head_dim": 64},
    "minimax_m2": {
        "model_type": "minimax_m2",
        "head_dim": 64,
        "intermediate_size": 512,
        "num_local_experts": 16,
        "num_experts_per_tok": 4,
    },
    "bailing": {"model_type": "bailing_moe", **_EXPERTS, "num_shared_experts": 1, "first_k_dense_replace": 1},
    "ernie4_5": {"model_type": "ernie4_5", "head_dim": 64},
}
_LORA = {"adapter": "lora", "lora_r": 16, "gradient_checkpointing": True}


def all_cases() -> list[dict[str, Any]]:
    """Two a family, in the form that `measure.py` reads."""
    shared = {"sequence_len": 1024, "micro_batch_size": 2, "steps": 3, "alloc_conf": "expandable_segments:True"}
    found = []
    for name, model in MODELS.items():
        fields = {**_SIZES, **model}
        if model["model_type"] == "nemotron_h":
            del fields["num_hidden_layers"]
        fields = {key: value for key, value in fields.items() if value is not None or key == "q_lora_rank"}
        for kind, settings in (("full", {}), ("lora_gc", _LORA)):
            found.append({"name": f"{name}_{kind}", "model": fields, **shared, **settings})
    return found


def predicted(case: Case) -> dict[str, Any]:
    """What is predicted of a case, in MiB."""
    torch = case.run.target.torch
    report = simulate(predict(case), parse_settings(case.run.allocator.settings, torch), torch=torch)
    return {
        "name": case.name,
        "allocated_mib": report.peak_allocated_bytes / MIB,
        "reserved_mib": report.peak_reserved_bytes / MIB,
    }


def _with_fla(case: Case) -> Case:
    """The same with flash-linear-attention installed."""
    target = case.run.target
    fla = Release(version="0.5.2", origin=Origin(kind="option", why="--fla"))
    stack = Stack(releases={**target.stack.releases, "fla-core": fla})
    return replace(case, run=replace(case.run, target=replace(target, stack=stack)))


def main() -> None:
    """Write the cases and the predictions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--fla", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    made = all_cases()
    (arguments.out / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in made))
    with (arguments.out / "predicted.jsonl").open("w") as file:
        for record in made:
            case = _case({"name": record["name"], "case": record}, arguments.out)
            line = predicted(_with_fla(case) if arguments.fla else case)
            print(f"{line['name']:28} allocated {line['allocated_mib']:9.1f} reserved {line['reserved_mib']:9.1f}")
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
