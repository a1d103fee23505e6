"""Models and their wrapping for `zero_rank.py`: DeepSpeed's engine, FSDP 2 as accelerate or Axolotl sets it up, DDP."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

from rank_cases import SHAPES, deepspeed_config

BF16 = torch.bfloat16


def build(case: dict[str, Any], device: str) -> Any:
    """A llama of the case's shape in bf16 on the device, with adapters if wanted; under ZeRO 3 made in parts."""
    config = LlamaConfig(**SHAPES[case["shape"]], attn_implementation="sdpa", use_cache=False, dtype=BF16)
    model: Any
    with _made_in_parts(case):
        torch.set_default_dtype(BF16)
        with torch.device(device):
            model = LlamaForCausalLM(config)
        torch.set_default_dtype(torch.float32)
    if case["quantised"]:
        _quantise(model, device)
    if case["lora"]:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=case["rank"], target_modules="all-linear", task_type="CAUSAL_LM"))
    if case["checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": case["checkpointing"] == "reentrant"})
        if case["lora"]:
            model.enable_input_require_grads()
    return model.train()


def fullest_rank(case: dict[str, Any]) -> int:
    """ZeRO 1 and 2: the rank whose partition the most elements of whole weights reach into."""
    if case["kind"] != "zero" or case["stage"] == 3:
        return 0
    ranks = case["ranks"]
    model = build(case | {"quantised": False, "checkpointing": None}, "meta")
    kept = [0] * ranks
    for group in optimizer_of(case | {"optimizer": "adamw_torch"}, model).param_groups:
        total = sum(p.numel() for p in group["params"])
        size, at = -(-total // (2 * ranks)) * 2, 0
        for parameter in group["params"]:
            for rank in range(at // size, min(ranks, (at + parameter.numel() - 1) // size + 1)):
                kept[rank] += parameter.numel()
            at += parameter.numel()
    return kept.index(max(kept))


def _made_in_parts(case: dict[str, Any]) -> Any:
    if case["kind"] != "zero" or case["stage"] != 3 or case["quantised"]:
        return contextlib.nullcontext()
    import deepspeed

    deepspeed.init_distributed(dist_init_required=False)
    return deepspeed.zero.Init(config_dict_or_path=deepspeed_config(case))


def _quantise(model: Any, device: str) -> None:
    """Every linear layer of the blocks in 4 bits, stored as bf16, as Axolotl asks for it."""
    import bitsandbytes as bnb

    for layer in model.model.layers:
        for parent in list(layer.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, torch.nn.Linear):
                    made = bnb.nn.Linear4bit(
                        child.in_features,
                        child.out_features,
                        bias=False,
                        compute_dtype=BF16,
                        quant_type="nf4",
                        compress_statistics=True,
                        quant_storage=BF16,
                    )
                    made.weight = bnb.nn.Params4bit(
                        child.weight.data.cpu(), requires_grad=False, quant_type="nf4", quant_storage=BF16, module=made
                    )
                    setattr(parent, name, made.to(device))


def optimizer_of(case: dict[str, Any], model: Any) -> torch.optim.Optimizer:
    """The trainer's optimizer, its two groups as transformers makes them."""
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    plain = [p for name, p in trained if name.endswith("bias") or "norm" in name.lower()]
    decayed = [p for _, p in trained if not any(p is q for q in plain)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    name = case["optimizer"]
    if "8bit" in name or "bnb" in name:
        import bitsandbytes as bnb

        kind = bnb.optim.PagedAdamW if name.startswith("paged") else bnb.optim.AdamW
        return kind(groups, lr=1e-5, optim_bits=8 if "8bit" in name else 32)
    on_card = torch.cuda.is_available() and not case.get("zero", {}).get("offload_optimizer")
    return torch.optim.AdamW(groups, lr=1e-5, fused=True if name.endswith("fused") and on_card else None)


def wrap(case: dict[str, Any], model: Any, watch: Any) -> tuple[Any, Any]:
    """The model as it is trained, and DeepSpeed's engine where there is one."""
    if case["kind"] == "zero":
        import deepspeed

        deepspeed.init_distributed(dist_init_required=False)
        optimizer = optimizer_of(case, model)
        engine = deepspeed.initialize(model=model, optimizer=optimizer, config=deepspeed_config(case))[0]
        return engine, engine
    if case["kind"] == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model), None
    return _shard(case, model, watch.device), None


def _shard(case: dict[str, Any], model: Any, device: str) -> Any:
    settings: dict[str, Any] = {
        "mesh": init_device_mesh(device, (case["ranks"],), mesh_dim_names=("shard",)),
        "mp_policy": MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=BF16, output_dtype=BF16),
    }
    if case.get("offload"):
        settings["offload_policy"] = CPUOffloadPolicy()
    drops = {"reshard_after_forward": not case.get("keep")}
    base = model.get_base_model() if case["lora"] else model
    if case["style"] == "accelerate":
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
        for layer in base.model.layers:
            fully_shard(layer, **settings, **drops)
        tail = [base.model.norm, base.lm_head]
        if base.config.tie_word_embeddings:
            tail.insert(1, base.model.embed_tokens)
        else:
            fully_shard(base.model.embed_tokens, **settings, **drops)
        fully_shard(tail, **settings, reshard_after_forward=False)
        return fully_shard(model, **settings)
    for layer in base.model.layers:
        for module in layer.modules():
            # since 0.21 adapters are parts of their blocks' units
            for part in ("lora_A", "lora_B") if case["style"] == "axolotl" else ():
                if hasattr(module, part):
                    fully_shard(getattr(module, part)["default"], **settings, **drops)
        fully_shard(layer, **settings, **drops)
    return fully_shard(model, **settings, **drops)
