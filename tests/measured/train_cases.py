"""The cases of bench/train_h200.py: model folders without weights, data of known lengths, Axolotl configs.

What a case is meant to show stands in its name. Nothing here knows a GPU.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
LLAMA_1B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
    "tie_word_embeddings": True, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_8B = LLAMA_1B | {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "head_dim": 128,
    "tie_word_embeddings": False,
}  # fmt: skip
TINY = LLAMA_1B | {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1024,
}  # fmt: skip
COMMON = {
    "gradient_accumulation_steps": 1, "max_steps": 6, "optimizer": "adamw_torch_fused", "learning_rate": 1e-5,
    "lr_scheduler": "constant", "bf16": True, "attn_implementation": "sdpa", "gradient_checkpointing": False,
    "save_strategy": "no", "logging_steps": 1, "train_on_inputs": True,
}  # fmt: skip
LORA = {"adapter": "lora", "lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.0, "lora_target_linear": True}
VARIABLE = {"sequence_len": 2048, "micro_batch_size": 4, "model": "1b", "train": "variable", **LORA}
EVALUATED = {
    "sequence_len": 1024, "micro_batch_size": 4, "model": "1b", "train": "full1024", "test": "full1024",
    "eval_steps": 3, "pad_to_sequence_len": True, **LORA,
}  # fmt: skip
LIGER = {"plugins": ["axolotl.integrations.liger.LigerPlugin"], "liger_fused_linear_cross_entropy": True}
DEFAULT, EXPANDABLE = "expandable_segments:False", "expandable_segments:True"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run. `room_gib`: how much of the card to keep for it, so that runs side by side do not collide."""

    name: str
    config: dict[str, Any]
    room_gib: float
    allocator: str = EXPANDABLE
    options: tuple[str, ...] = ()
    limit_gib: float | None = None
    recovers: bool = False  # runs out of memory, and ends all the same
    micro_after: int | None = None  # the micro-batch it must end with; None: that of the config
    exit_code: int = 0


def cases() -> list[Case]:
    """Largest first, so that the card is filled well."""
    unpadded, padded = VARIABLE | {"pad_to_sequence_len": False}, VARIABLE | {"pad_to_sequence_len": True}
    found = [
        Case(name="lengths vary, unpadded", config=unpadded, room_gib=58, allocator=DEFAULT),
        Case(name="lengths vary, unpadded, expandable", config=unpadded, room_gib=36),
        Case(name="lengths vary, padded to 2048", config=padded, room_gib=36, allocator=DEFAULT),
        Case(name="lengths vary, padded to 2048, expandable", config=padded, room_gib=36),
        Case(
            name="unpadded, expandable, limit 24 GiB", config=unpadded, room_gib=27, limit_gib=24, recovers=True,
            micro_after=2,
        ),
    ]  # fmt: skip
    for batch, room in ((4, 20), (8, 28), (16, 40)):
        config = EVALUATED | {"eval_batch_size": batch}
        found.append(Case(name=f"train 4, eval {batch}", config=config, room_gib=room, allocator=DEFAULT))
    sixteen = EVALUATED | {"eval_batch_size": 16}
    capped = Case(
        name="train 4, eval 16, limit 28.3 GiB", config=sixteen, room_gib=31, allocator=DEFAULT, limit_gib=28.3,
        recovers=True,
    )  # fmt: skip
    long = {"sequence_len": 2048, "micro_batch_size": 2, "train": "full2048", "pad_to_sequence_len": True}
    qlora = LORA | {"adapter": "qlora", "load_in_4bit": True, "model": "1b", "gradient_checkpointing": True}
    return [
        *found,
        Case(name="train 4, eval 16, expandable", config=sixteen, room_gib=29),
        capped,
        replace(capped, name="train 4, eval 16, expandable, limit 28.3 GiB", allocator=EXPANDABLE, recovers=False),
        Case(name="full 1B, micro 2 × 2", config=long | {"model": "1b", "gradient_accumulation_steps": 2}, room_gib=36),
        Case(
            name="LoRA 8B, checkpointing", config=long | LORA | {"model": "8b", "gradient_checkpointing": True},
            room_gib=36,
        ),
        Case(name="QLoRA 1B, checkpointing", config=long | qlora, room_gib=14),
        Case(
            name="remedy: checkpointing, limit 24 GiB", config=unpadded | {"gradient_checkpointing": True}, room_gib=27,
            limit_gib=24,
        ),
        Case(name="remedy: Liger's loss, limit 24 GiB", config=unpadded | LIGER, room_gib=27, limit_gib=24),
        Case(name="packed rows of 2048", config=padded | {"sample_packing": True, "micro_batch_size": 2}, room_gib=24),
        Case(name="too small for the model: limit 2 GiB", config=unpadded, room_gib=4, limit_gib=2, exit_code=75),
    ]  # fmt: skip


def rehearsed(case: Case) -> Case:
    """The same on a CPU: short rows, no limit, nothing that only a GPU has."""
    config = {key: value for key, value in case.config.items() if key != "load_in_4bit"}
    config["adapter"] = "lora" if config.get("adapter") else None
    config["sequence_len"] //= 16
    for key in LIGER:
        config.pop(key, None)
    return replace(
        case, config=config, room_gib=60, limit_gib=None, recovers=False, micro_after=None, exit_code=0,
        options=("--gpu", "H200"),
    )  # fmt: skip


def make_models(folder: Path, *, tiny: bool) -> None:
    """Model folders: a config and the example's tokenizer, no weights."""
    for name, shape in (("1b", LLAMA_1B), ("8b", LLAMA_8B)):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps(TINY if tiny else shape))
        for part in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(ROOT / "examples" / "tiny" / "model" / part, folder / name)


def make_data(folder: Path, *, divide: int) -> None:
    """Rows whose length in tokens is known: a word is one token, and a sample has an opening and a closing one."""
    source = random.Random(7)
    sets = {
        "variable": [2048, *(int(2048 * source.uniform(0.1, 1.0)) for _ in range(23))],
        "full1024": [1024] * 32,
        "full2048": [2048] * 24,
    }
    for name, lengths in sets.items():
        rows = [{"text": " ".join(["one"] * (length // divide - 2))} for length in lengths]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_config(folder: Path, name: str, config: dict[str, Any]) -> Path:
    """An Axolotl file for one case."""
    values = COMMON | config
    values["base_model"] = str(folder / values.pop("model"))
    values["datasets"] = [{"path": str(folder / f"{values.pop('train')}.jsonl"), "type": "completion"}]
    if "test" in values:
        values["test_datasets"] = [{"path": str(folder / f"{values.pop('test')}.jsonl"), "type": "completion"}]
    values["output_dir"] = str(folder / "runs" / name)
    path = folder / f"{name}.yml"
    path.write_text(yaml.safe_dump({key: value for key, value in values.items() if value is not None}))
    return path
