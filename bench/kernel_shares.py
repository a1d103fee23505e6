"""How much memory kernels inside of layers save: the bounds of traced models, which are predicted without them.

Draws runs of families written by hand, predicts each with and without Liger's kernels, fused LoRA kernels and, for
some, a tiled MLP, and prints the shares of reserved memory that remain.

    python bench/kernel_shares.py [--runs 60] [--seed 38]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

from vramwise.allocator.run import simulate  # noqa: E402
from vramwise.allocator.settings import parse_settings  # noqa: E402
from vramwise.ghost.loops.sft import ghost_run  # noqa: E402
from vramwise.opening.options import Options  # noqa: E402
from vramwise.opening.subject import open_subject  # noqa: E402

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "granite", "olmo2")
_LIGER = {"liger_rope": True, "liger_rms_norm": True, "liger_glu_activation": True}
_LORA_KERNELS = {"lora_mlp_kernel": True, "lora_qkv_kernel": True, "lora_o_kernel": True}
_CUT = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"


def drawn(chance: random.Random) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]:
    """Return a model, a config, what turns the kernels on, and a name."""
    kind, hidden = chance.choice(FAMILIES), chance.choice([1024, 2048, 4096])
    heads = hidden // 128
    model = {
        "model_type": kind,
        "hidden_size": hidden,
        "intermediate_size": int(hidden * chance.choice([2, 2.75, 3.5, 5.5])) // 64 * 64,
        "num_hidden_layers": chance.choice([6, 16, 28]),
        "num_attention_heads": heads,
        "num_key_value_heads": chance.choice([heads, max(1, heads // 4)]),
        "head_dim": 128,
        "vocab_size": chance.choice([32000, 32000, 128256]),
        "max_position_embeddings": 16384,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "random_weights": True,
    }
    method = chance.choice(["full", "lora", "qlora"])
    config: dict[str, Any] = {
        "base_model": "./model",
        "datasets": [{"path": "tatsu-lab/alpaca", "type": "alpaca"}],
        "sequence_len": chance.choice([1024, 4096, 8192]),
        "pad_to_sequence_len": True,
        "micro_batch_size": chance.choice([1, 2, 4]),
        "gradient_accumulation_steps": 1,
        "gradient_checkpointing": chance.random() < 0.3,
        "attn_implementation": chance.choice(["sdpa", "flash_attention_2"]),
        "num_epochs": 1,
        "learning_rate": 0.0001,
        "bf16": True,
        "optimizer": "adamw_torch_fused",
        "output_dir": "out",
    }
    plugins = [_CUT] if chance.random() < 0.6 else []
    config |= {"plugins": plugins, "cut_cross_entropy": True} if plugins else {}
    kernels: dict[str, Any] = {"plugins": [*plugins, "axolotl.integrations.liger.LigerPlugin"], **_LIGER}
    if method != "full":
        config |= {"adapter": method, "load_in_4bit": method == "qlora", "lora_target_linear": True, "lora_alpha": 16}
        config |= {"lora_r": chance.choice([8, 64]), "lora_dropout": chance.choice([0, 0, 0.05])}
        config |= {"peft_use_dora": chance.random() < 0.2}
        kernels |= _LORA_KERNELS
    if chance.random() < 0.3:
        kernels["tiled_mlp"] = True
    return model, config, kernels, f"{kind} {method} {'tiled' if 'tiled_mlp' in kernels else ''}".rstrip()


def reserved(config: dict[str, Any]) -> int:
    """Return the peak of reserved memory that is predicted."""
    Path("config.yml").write_text(json.dumps(config), encoding="utf-8")
    subject = open_subject(Path("config.yml"), Options(gpu="h200"))
    assert subject.model is not None
    timeline, _ = ghost_run(subject.run, subject.model, gpu=subject.target.gpu, steps=3)
    torch = subject.target.torch
    return simulate(timeline, parse_settings(subject.run.allocator.settings, torch), torch=torch).highest_reserved_bytes


def main() -> None:
    """Print a line a run, the smallest share first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=38)
    asked = parser.parse_args()
    chance, shares = random.Random(asked.seed), []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("model").mkdir()
        for _ in range(asked.runs):
            model, config, kernels, name = drawn(chance)
            Path("model/config.json").write_text(json.dumps(model), encoding="utf-8")
            shares.append((reserved({**config, **kernels}) / reserved(config), name))
        os.chdir("/")
    for share, name in sorted(shares):
        print(f"{share:.3f} {name}")


if __name__ == "__main__":
    main()
