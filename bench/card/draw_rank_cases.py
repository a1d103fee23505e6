"""The runs of several ranks that are measured on one card.

python draw_rank_cases.py > rank_cases.json             the ones that were chosen
python draw_rank_cases.py --seed 7 --count 10           so many by chance
"""

from __future__ import annotations

import argparse
import json
import random
from typing import Any

LORA = {"adapter": "lora", "lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.0, "lora_target_linear": True}
QLORA = {**LORA, "adapter": "qlora", "load_in_4bit": True}
ROWS = {"pad_to_sequence_len": True, "max_steps": 4}
CHECKPOINTED = {"gradient_checkpointing": True}
PACKED = {"sample_packing": True, "attn_implementation": "flash_attention_2"}
EVALUATED = {"val_set_size": 0.1, "eval_steps": 2, "eval_batch_size": 2}
TRL_LORA = {"use_peft": True, "lora_r": 16, "lora_target_modules": "all-linear", "dtype": "bfloat16"}
TRL_ROWS = {"max_length": 1024, "per_device_train_batch_size": 2, "max_steps": 4, "optim": "adamw_torch_fused"}
TRL_EVALUATED = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 2}
FACTORY_LORA = {"finetuning_type": "lora", "lora_rank": 16, "lora_target": "all", "bf16": True}
FACTORY_FULL = {"finetuning_type": "full", "bf16": True}
FACTORY_ROWS = {"cutoff_len": 1024, "per_device_train_batch_size": 2, "max_steps": 4, "optim": "adamw_torch_fused"}


def sharded(block: str = "LlamaDecoderLayer", **more: Any) -> dict[str, Any]:
    """Axolotl's FSDP 2."""
    config = {
        "offload_params": False,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "transformer_layer_cls_to_wrap": block,
        "state_dict_type": "FULL_STATE_DICT",
        "reshard_after_forward": True,
    }
    return {"fsdp_version": 2, "fsdp_config": config | more}


def zero(stage: int, **more: Any) -> dict[str, Any]:
    """DeepSpeed's file, sizes left to the trainer."""
    section: dict[str, Any] = {"stage": stage, "overlap_comm": True, "contiguous_gradients": True}
    section["reduce_bucket_size"] = "auto"
    if stage == 3:
        section |= {
            "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
            "stage3_gather_16bit_weights_on_model_save": False,
        }
    followed = (
        "gradient_accumulation_steps",
        "gradient_clipping",
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
    )
    return {"zero_optimization": section | more, "bf16": {"enabled": True}} | dict.fromkeys(followed, "auto")


def launched(world: int, block: str = "LlamaDecoderLayer", **more: Any) -> dict[str, Any]:
    """The file of `accelerate launch` for FSDP 2."""
    fsdp = {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_transformer_layer_cls_to_wrap": block,
        "fsdp_reshard_after_forward": True,
        "fsdp_state_dict_type": "FULL_STATE_DICT",
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_offload_params": False,
    }
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "num_machines": 1,
        "num_processes": world,
        "fsdp_config": fsdp | more,
    }


def named(trainer: str, what: str, model: str, world: int, more: dict[str, Any]) -> str:
    """A run's name: who trains what, and how many ranks exchange by what."""
    return f"{trainer}_{what}_{model}{'_nccl' if more.get('cuda') == 'nccl' else ''}_w{world}"


def axolotl(name: str, model: str, world: int, config: dict[str, Any], **more: Any) -> tuple[str, dict[str, Any]]:
    """A run of Axolotl."""
    return named("ax", name, model, world, more), {
        "trainer": "axolotl",
        "axolotl": "0.21.0",
        "model": model,
        "world": world,
        "config": {"micro_batch_size": 1, **ROWS, **config},
        **more,
    }


def trl(name: str, model: str, world: int, config: dict[str, Any], method: str = "sft", **more: Any) -> tuple[str, Any]:
    """A run of TRL."""
    own = TRL_ROWS | config
    return named("trl", name, model, world, more), {
        "trainer": "trl",
        "method": method,
        "model": model,
        "world": world,
        "config": own,
        **more,
    }


def factory(name: str, model: str, world: int, config: dict[str, Any], **more: Any) -> tuple[str, dict[str, Any]]:
    """A run of LLaMA-Factory."""
    return named("lf", name, model, world, more), {
        "trainer": "llamafactory",
        "method": "sft",
        "model": model,
        "world": world,
        "config": FACTORY_ROWS | config,
        **more,
    }


# what `fit --gpu 2x18GB --allow fsdp` and `--allow zero` wrote for a full fine-tune of Llama-3.2-1B, micro-batch 2
FITTED_FSDP = {
    "fsdp_version": 2,
    "fsdp_config": {
        "offload_params": False,
        "cpu_ram_efficient_loading": True,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "state_dict_type": "FULL_STATE_DICT",
        "reshard_after_forward": True,
    },
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 8,
}
FITTED = {"micro_batch_size": 1, "gradient_accumulation_steps": 8}  # and Axolotl's zero2.json
# Axolotl's zero2.json, but torch's optimizer on the host: DeepSpeed's wants a compiler
FITTED_ZERO = zero(2, reduce_bucket_size=500_000_000, offload_optimizer={"device": "cpu"})
FITTED_ZERO["zero_force_ds_cpu_optimizer"] = False
OFFLOADED = {"offload_param": {"device": "cpu", "pin_memory": False}}
MOE = "OlmoeDecoderLayer"
# Axolotl's kernels refuse this family's attention
MOE_LORA = {**LORA, "lora_qkv_kernel": False, "lora_o_kernel": False, "lora_mlp_kernel": False}
TRL_FULL = {"dtype": "bfloat16"}
QWEN = "Qwen2DecoderLayer"
FULL_QWEN3 = {**sharded("Qwen3DecoderLayer"), **CHECKPOINTED, **PACKED}
CASES = dict(
    [
        axolotl("fsdp2_lora_moe", "olmoe4", 2, {**MOE_LORA, **sharded(MOE), **CHECKPOINTED}),
        trl("ddp_full", "qwen25_05b", 2, TRL_FULL, cuda="nccl"),
        trl("fsdp2_dpo_lora", "llama1b", 2, TRL_LORA, method="dpo", accelerate=launched(2)),
        axolotl("zero3_offload", "llama1b", 2, CHECKPOINTED, zero=zero(3, **OFFLOADED)),
        trl("ddp_full", "qwen25_05b", 1, TRL_FULL, cuda="nccl"),
        axolotl("ddp_qlora", "llama8b8", 1, {**QLORA, **CHECKPOINTED}, cuda="nccl"),
        factory("fsdp2_full", "qwen25_05b", 2, FACTORY_FULL, accelerate=launched(2, QWEN)),
        axolotl("fitted_fsdp2", "llama1b", 2, FITTED_FSDP),
        trl("fsdp2_lora_eval", "llama1b", 2, {**TRL_LORA, **TRL_EVALUATED}, accelerate=launched(2)),
        axolotl("fitted_zero2", "llama1b", 2, FITTED, zero=FITTED_ZERO),
        factory("zero3_full", "llama1b", 2, FACTORY_FULL, zero=zero(3)),
        trl("zero3_full", "llama1b", 4, TRL_FULL, zero=zero(3)),
        axolotl("fsdp2_full", "qwen3_4b9", 4, FULL_QWEN3),
        axolotl("zero1_full", "llama1b", 4, CHECKPOINTED, zero=zero(1)),
        axolotl("zero2_lora_moe", "olmoe4", 2, {**MOE_LORA, **CHECKPOINTED}, zero=zero(2)),
        axolotl("ddp_qlora", "llama8b8", 2, {**QLORA, **CHECKPOINTED}, cuda="nccl"),
        factory("ddp_full", "qwen25_05b", 2, FACTORY_FULL, cuda="nccl"),
        trl("zero3_offload", "llama1b", 2, TRL_FULL, zero=zero(3, **OFFLOADED)),
        axolotl("fsdp2_full_dpo", "qwen25_05b", 2, {**sharded(QWEN), **CHECKPOINTED, "rl": "dpo"}),
        trl("ddp_qlora", "llama8b8", 2, {**TRL_LORA, "load_in_4bit": True}, cuda="nccl"),
        factory("zero3_lora", "llama1b", 2, FACTORY_LORA, zero=zero(3), cuda="nccl"),
        trl("fsdp2_full", "llama1b", 2, {}, accelerate=launched(2, fsdp_cpu_ram_efficient_loading=False), cuda="nccl"),
    ]
)


# models by chance: name, and the class of a block
BY_CHANCE = {
    "llama1b": "LlamaDecoderLayer",
    "tinyllama": "LlamaDecoderLayer",
    "qwen25_05b": QWEN,
    "qwen3_06b": "Qwen3DecoderLayer",
}
WAYS = ("ddp", "fsdp2", "fsdp2", "zero1", "zero2", "zero3", "zero3")


def by_chance(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A trainer, a model, a way to spread it, and a few settings that change what memory holds."""
    trainer, way = rng.choice(("ax", "trl", "lf")), rng.choice(WAYS)
    model, world = rng.choice(list(BY_CHANCE)), rng.choice((2, 2, 2, 4))
    lora, checkpointed = rng.random() < 0.5, rng.random() < 0.5
    length, rows, accumulation = rng.choice((512, 1024, 2048)), rng.choice((1, 2, 4)), rng.choice((1, 1, 2, 3))
    more: dict[str, Any] = {"cuda": "nccl"} if way == "ddp" else {}
    config: dict[str, Any] = {"gradient_accumulation_steps": accumulation}
    config |= {"gradient_checkpointing": True} if checkpointed else {}
    name = f"{way}_{'lora' if lora else 'full'}"
    if way.startswith("zero"):
        stage = int(way[-1])
        more["zero"] = zero(stage, **(OFFLOADED if stage == 3 and rng.random() < 0.3 else {}))
        name += "_offload" if "offload_param" in more["zero"]["zero_optimization"] else ""
    elif way == "fsdp2":
        spared = {key: rng.random() < 0.5 for key in ("cpu_ram_efficient_loading", "reshard_after_forward")}
        if trainer == "ax":
            config |= sharded(BY_CHANCE[model], **spared)
        else:
            more["accelerate"] = launched(
                world, BY_CHANCE[model], **{f"fsdp_{key}": value for key, value in spared.items()}
            )
    if trainer == "ax":
        packed = PACKED if rng.random() < 0.3 else {}
        own = {**(LORA if lora else {}), **packed, "sequence_len": length, "micro_batch_size": rows, **config}
        return axolotl(f"chance_{name}", model, world, own, **more)
    sizes = {"per_device_train_batch_size": rows, **config}
    if trainer == "trl":
        return trl(
            f"chance_{name}", model, world, {**(TRL_LORA if lora else TRL_FULL), "max_length": length, **sizes}, **more
        )
    own = {**(FACTORY_LORA if lora else FACTORY_FULL), "cutoff_len": length, **sizes}
    if not checkpointed:
        own["disable_gradient_checkpointing"] = True
    own.pop("gradient_checkpointing", None)
    return factory(f"chance_{name}", model, world, own, **more)


def main() -> None:
    """Print the cases, the most wanted first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--count", type=int, default=10)
    arguments = parser.parse_args()
    cases = CASES
    if arguments.seed is not None:
        rng = random.Random(arguments.seed)
        cases = dict(by_chance(rng) for _ in range(arguments.count))
    print(json.dumps(cases, indent=1))


if __name__ == "__main__":
    main()
