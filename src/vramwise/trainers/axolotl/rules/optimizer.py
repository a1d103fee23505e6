"""Axolotl's own rules about optimizers: their settings, and how they can be sharded."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import Schema, elsewhere, schema_of, suggest, value_history
from vramwise.trainers.axolotl.spell.edits import written_key
from vramwise.types import Fix, RunSpec, Severity
from vramwise.variants import changes

_SETTINGS = ("adam_beta1", "adam_beta2", "adam_epsilon")
# Built without any of the three: transformers 5 (trainer_optimizer.py), Axolotl (core/builders/base.py).
_READ_NONE = frozenset(
    {
        "sgd",
        "adagrad",
        "adafactor",
        "rmsprop",
        "rmsprop_bnb",
        "rmsprop_bnb_8bit",
        "rmsprop_bnb_32bit",
        "lomo",
        "adalomo",
        "grokadamw",
        "polora",
        "schedule_free_sgd",
        "flash_sgd",
        "flash_sgdw",
    }
)


@rule(
    id="adam-settings-without-adam",
    severity=Severity.WARNING,
    also=(Severity.INFO,),
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adafactor\nadam_beta2: 0.95\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_fused\nadam_beta2: 0.95\n",
    beyond_trainer="Axolotl looks for `adamw` in the name, but GaLore and GrokAdamW do not read the settings.",
)
def adam_settings_without_adam(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """AdamW settings are set for an optimizer that is not AdamW.

    `adam_beta1`, `adam_beta2` and `adam_epsilon` configure the AdamW family. SGD, Adafactor, RMSprop, LOMO and GaLore
    do not read them, so the values have no effect. Lion, Muon, AdEMAMix and a few others read some of them for their
    own moments, where AdamW's usual values may not be suitable: the finding is then only a note.
    """
    name = run.optimizer.name
    if name not in schema_of(run).optimizers():
        return
    for key in _SETTINGS:
        value = run.config.get(key)
        if not value:
            continue
        if _ignores(name, key):
            yield Hit(
                f"{key} {value} has no effect: optimizer {name} does not read it",
                key,
                safe(f"Remove {key}, which is not read", delete_key(key)),
            )
        elif "adamw" not in name:
            yield Hit(
                f"{key} {value} is an AdamW setting that optimizer {name} reads too: check the value",
                key,
                severity=Severity.INFO,
            )


def _ignores(name: str, key: str) -> bool:
    return name in _READ_NONE or name.startswith("galore_") or ("lion" in name and key == "adam_epsilon")


# Common names, or names of transformers 4 or an earlier Axolotl, and the current name.
_CALLED_TODAY = {
    "adam": "adamw_torch",
    "adamw": "adamw_torch",
    "adamw_hf": "adamw_torch",
    "adamw_apex_fused": "adamw_torch_fused",
    "ademamix_32bit": "ademamix",
    "adopt": "adopt_adamw",
    "came": "came_pytorch",
    "lion": "lion_32bit",
    "lion_pytorch": "lion_32bit",
    "paged_adamw": "paged_adamw_32bit",
}


@rule(
    id="unknown-optimizer",
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_fuse\nlearning_rate: 0.0002\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_fused\nlearning_rate: 0.0002\n",
    beyond_trainer="Axolotl's schema accepts any text; transformers refuses the name after the model has loaded.",
)
def unknown_optimizer(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The optimizer is unknown to Axolotl and transformers.

    Axolotl checks only that `optimizer` is text. It passes any name that is not one of its own optimizers to
    transformers, which looks it up when it builds the trainer, after the data has been tokenised and the model loaded.
    A typo wastes that whole start. An empty `optimizer:` fails the same way. If the key is missing, the default is
    adamw_torch_fused. Names differ between versions of Axolotl: `muon_8bit` comes with 0.21, `scao` with 0.20.
    """
    if "optimizer" not in run.config:
        return
    name = run.config.document.values.get("optimizer")
    if name is None:
        yield Hit(
            "optimizer is empty: transformers stops after loading the model",
            "optimizer",
            unsafe("Delete optimizer: the default is adamw_torch_fused", delete_key("optimizer")),
        )
    elif isinstance(name, str) and name not in schema_of(run).optimizers():
        yield _unknown(schema_of(run), name)


def _unknown(schema: Schema, name: str) -> Hit:
    if when := elsewhere(value_history("optimizer", name), schema.version):
        message = f"optimizer {name!r} {when}: Axolotl {schema.short} stops after loading the model"
        return Hit(message, "optimizer")
    working = schema.optimizers() - schema.optimizer_group("raises_later")
    close = (_CALLED_TODAY[name],) if name in _CALLED_TODAY else suggest(name, working)
    sure = close if len(close) == 1 else tuple(found for found in close if _is_a_slip(name, found))
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return Hit(
        f"optimizer {name!r} is unknown: the run stops after loading the model{hint}",
        "optimizer",
        unsafe(f"Use {sure[0]}", set_key("optimizer", sure[0])) if len(sure) == 1 else None,
    )


def _is_a_slip(written: str, meant: str) -> bool:
    """Whether the names differ only in case and separators, or by one letter too many or too few."""
    long, short = (name.lower().replace("-", "").replace("_", "") for name in (written, meant))
    if len(long) < len(short):
        long, short = short, long
    if len(long) == len(short):
        return long == short
    return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))


fsdp_offload_8bit_optimizer = row(
    id="fsdp-offload-8bit-optimizer",
    text="""FSDP1 offloads parameters to host memory, but the optimizer is an 8-bit one.

    With `offload_params` the optimizer runs on the CPU, on flat shards, but the 8-bit optimizers are made for the GPU.
    Axolotl refuses every optimizer with `8bit` in its name. The state is in host memory anyway, so plain AdamW needs no
    GPU memory for it. FSDP1 exists only up to Axolotl 0.19. FSDP2 can offload with torchao's 8-bit optimizers too.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\nfsdp_config:\n  offload_params: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch\nfsdp_config:\n  offload_params: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
    when=lambda run: run.sharding.kind == "fsdp1" and run.sharding.offload_params and "8bit" in run.optimizer.name,
    key="optimizer",
    message=lambda run: (
        f"Axolotl refuses optimizer {run.optimizer.name} with FSDP1 offload, where the optimizer runs on the CPU"
    ),
    fix=unsafe("Use AdamW on the CPU: adamw_torch", set_key("optimizer", "adamw_torch")),
)

galore_without_targets = row(
    id="galore-without-targets",
    text="""GaLore or APOLLO without `optim_target_modules`.

    Both project the gradients of chosen linear layers to a low rank, which is how they save memory. transformers
    has no default for these layers and stops while it builds the optimizer. `[attn, mlp]` chooses the linear layers of
    attention and MLP by parts of their names, as in GaLore's own examples. `all_linear` chooses all of them.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw\noptim_target_modules:\n  - attn\n  - mlp\n",
    beyond_trainer="Axolotl accepts it; transformers refuses it when it builds the optimizer, after loading the model.",
    when=lambda run: (
        run.optimizer.name in schema_of(run).optimizer_group("needs_target_modules")
        and run.config.get("optim_target_modules") is None
    ),
    key="optimizer",
    message=lambda run: (
        f"optimizer {run.optimizer.name} without optim_target_modules: transformers stops after loading the model"
    ),
    fix=unsafe(
        "Project attention and MLP: optim_target_modules: [attn, mlp]",
        insert_key("optim_target_modules", ["attn", "mlp"], beside="optimizer"),
    ),
)

optimizer_unhandled = row(
    id="optimizer-unhandled",
    explains={"optimizer-unhandled"},
    text="""Axolotl's schema accepts the optimizer, but its trainer refuses it.

    `ao_adamw_4bit` and `ao_adamw_8bit` are still accepted names, but the code that builds the trainer no longer
    supports them: it raises "Unhandled optimizer" after the model has loaded. transformers has the same torchao
    optimizers as `adamw_torch_4bit` and `adamw_torch_8bit`.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: ao_adamw_8bit\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\n",
    beyond_trainer="Axolotl's schema lists the name, but its trainer builder has no case for it and raises.",
    when=lambda run: run.optimizer.name in schema_of(run).optimizer_group("raises_later"),
    key="optimizer",
    message=lambda run: (
        f"optimizer {run.optimizer.name} passes the schema but is not supported: Axolotl stops after loading the model"
    ),
    change=changes.handled_optimizer,
)


def _bitsandbytes_8bit(run: RunSpec) -> bool:
    return run.optimizer.name in schema_of(run).optimizer_group("bitsandbytes_8bit")


_TORCHAO = unsafe("Use torchao's 8-bit AdamW: adamw_torch_8bit", set_key("optimizer", "adamw_torch_8bit"))


@rule(
    id="fsdp2-8bit-optimizer",
    also=(Severity.WARNING,),
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_8bit\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2",
    beyond_trainer=(
        "Axolotl refuses only adamw_8bit and adamw_bnb_8bit; the other 8-bit optimizers of bitsandbytes use the same "
        "kernels."
    ),
)
def fsdp2_8bit_optimizer(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An 8-bit optimizer of bitsandbytes under FSDP2.

    FSDP2 stores every parameter as a distributed tensor. The kernels of bitsandbytes expect plain tensors of the local
    size, so the first optimizer step ends in an illegal memory access (bitsandbytes#1633, open; version 0.50.2 does not
    support distributed tensors). Axolotl refuses two of the names and accepts the paged and the Lion variants.
    torchao's `adamw_torch_8bit` supports FSDP2 and also keeps its state in 8 bits.
    """
    name = run.optimizer.name
    if run.sharding.kind != "fsdp2" or not _bitsandbytes_8bit(run):
        return
    stops = name in ("adamw_8bit", "adamw_bnb_8bit")
    then = "Axolotl stops" if stops else "an illegal memory access is likely at the first step"
    yield Hit(
        f"optimizer {name} with FSDP2: the 8-bit kernels of bitsandbytes do not support sharded parameters, so {then}",
        "optimizer",
        _TORCHAO,
        severity=None if stops else Severity.WARNING,
    )


@rule(
    id="tensor-parallel-8bit-optimizer",
    severity=Severity.WARNING,
    also=(Severity.ERROR,),
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_bnb_8bit\ntensor_parallel_size: 2\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\ntensor_parallel_size: 2\n",
    options="--gpus 2",
    beyond_trainer="Axolotl refuses only three of the names, and only since 0.20: before, its check is never run.",
)
def tensor_parallel_8bit_optimizer(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An 8-bit optimizer of bitsandbytes with tensor parallelism.

    Tensor parallelism stores the split weights as distributed tensors, as FSDP2 does, and the kernels of bitsandbytes
    do not support those (bitsandbytes#1633). Since 0.20 Axolotl refuses the three AdamW names. Up to 0.19 its check is
    never run, so the run fails without warning. torchao's `adamw_torch_8bit` supports distributed tensors.
    """
    name, size = run.optimizer.name, run.sharding.tensor_parallel_size
    if size <= 1 or not _bitsandbytes_8bit(run):
        return
    stops = schema_of(run).since("0.20.0") and name in ("paged_adamw_8bit", "adamw_8bit", "adamw_bnb_8bit")
    yield Hit(
        f"optimizer {name} with tensor_parallel_size {size}: the 8-bit kernels of bitsandbytes do not support split "
        f"weights, so {'Axolotl stops' if stops else 'the first step is likely to fail'}",
        "optimizer",
        _TORCHAO,
        severity=Severity.ERROR if stops else None,
    )


@rule(
    id="flash-optimizer-sharding-unsupported",
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: flash_adamw\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: flash_adamw\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
)
def flash_optimizer_sharding_unsupported(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A flash optimizer together with DeepSpeed or FSDP1.

    `flash_adamw`, `flash_adam`, `flash_sgd`, `flash_sgdw` and `flash_lion` update each parameter separately.
    DeepSpeed's ZeRO and FSDP1 replace the parameters with flat shards of many, so Axolotl refuses both (0.20 removed
    FSDP1). Use DDP or FSDP2.
    """
    if run.optimizer.name in schema_of(run).optimizer_group("flash"):
        yield from _flattened(run, "the flash optimizers need DDP or FSDP2")


def _flattened(run: RunSpec, why: str) -> Iterator[Hit]:
    """Report DeepSpeed and FSDP1, for optimizers that work on one GPU, with DDP and with FSDP2."""
    refused = f"Axolotl refuses optimizer {run.optimizer.name}"
    if run.config.get("deepspeed"):
        yield Hit(f"{refused} with DeepSpeed: {why}", "deepspeed")
    if run.sharding.kind == "fsdp1":
        version = run.config.get("fsdp_version", "unset means 1")
        message = f"{refused} with FSDP1 (fsdp_version {version}): {why}"
        yield Hit(message, "fsdp_version", change=changes.second_fsdp(run))


@rule(
    id="muon-sharding-unsupported",
    bad="optimizer: muon\nfsdp_version: 1\nfsdp_config:\n  reshard_after_forward: true\n",
    good="optimizer: muon\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
)
def muon_sharding_unsupported(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Muon together with DeepSpeed or FSDP1.

    Muon orthogonalises whole weight matrices. DeepSpeed's ZeRO and FSDP1 flatten the parameters into shards that
    contain no matrices, so Axolotl refuses both. This also applies to `muon_8bit` (since 0.21). Muon works on one GPU,
    with DDP, and with FSDP2, which keeps every parameter as a separate matrix.
    """
    if run.optimizer.name in ("muon", "muon_8bit"):
        yield from _flattened(run, "it updates whole matrices and needs DDP or FSDP2")


@rule(
    id="layerwise-optimizer-unsupported",
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw_layerwise\n"
    "optim_target_modules: [attn, mlp]\ngradient_accumulation_steps: 4\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw_layerwise\n"
    "optim_target_modules: [attn, mlp]\ngradient_accumulation_steps: 1\n",
    beyond_trainer="Axolotl accepts it; transformers refuses it when it builds the optimizer, after loading the model.",
)
def layerwise_optimizer_unsupported(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A layer-wise optimizer with gradient accumulation or on several GPUs.

    Layer-wise GaLore and APOLLO update each layer during the backward pass and drop its gradient at once, so no
    gradient is left to accumulate or to reduce across GPUs. transformers refuses both. The variants without
    `_layerwise` keep gradients and support both.
    """
    name, steps, gpus = run.optimizer.name, run.batch.gradient_accumulation_steps, run.batch.gpus
    if not name.endswith("_layerwise") or name not in schema_of(run).optimizer_group("needs_target_modules"):
        return
    whole = name.removesuffix("_layerwise")
    fix = unsafe(f"Keep the gradients: {whole}", set_key("optimizer", whole))
    why = f"with optimizer {name}, which drops each gradient during the backward pass"
    if steps != 1:
        message = f"transformers refuses gradient_accumulation_steps {steps} {why}"
        yield Hit(message, "gradient_accumulation_steps", fix)
    if gpus > 1:
        yield Hit(f"transformers refuses {gpus} GPUs {why}", "optimizer", fix)


_NEVER_TRAINED = (
    *("lora_modules_to_save", "unfrozen_parameters", "peft_use_dora", "peft_trainable_token_indices"),
    *("lisa_step_interval", "reward_model", "process_reward_model"),
)
_IGNORED_RATES = ("loraplus_lr_ratio", "lr_groups", "embedding_lr", "embedding_lr_scale")
_BESIDE_POLORA = {
    **dict.fromkeys(_NEVER_TRAINED, "it adds parameters that polora never trains"),
    **dict.fromkeys(
        ("loraplus_lr_ratio", "lr_groups", "embedding_lr", "embedding_lr_scale"), "polora does not read it"
    ),
    "relora_steps": "it resets a state that polora does not keep there",
}


@rule(
    id="polora-misused",
    also=(Severity.WARNING,),
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: polora\nadapter: lora\nlora_r: 16\nloraplus_lr_ratio: 16\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: polora\nadapter: lora\nlora_r: 16\n",
)
def polora_misused(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """PoLoRA with a setting that it does not support.

    The `polora` optimizer updates only the two factors of LoRA adapters. Without an adapter it has nothing to train.
    Whole modules, new tokens or DoRA magnitudes would stay untrained. It does not read learning rates per group. It
    needs whole factors, so DeepSpeed, tensor parallelism and FSDP1 do not work. Axolotl stops in each of these cases.
    Weight decay has no effect.
    """
    config, size = run.config, run.sharding.tensor_parallel_size
    if run.optimizer.name != "polora":
        return
    refused = "Axolotl refuses optimizer polora with"
    if run.adapter.kind not in ("lora", "qlora"):
        yield Hit(f"{refused} adapter {run.adapter.kind or 'unset'}: it trains only LoRA factors", "adapter")
    yield from _flattened(run, "polora needs whole factors (one GPU, DDP or FSDP2)")
    if size > 1:
        yield Hit(f"{refused} tensor_parallel_size {size}: it needs whole factors", "tensor_parallel_size")
    for key, why in _BESIDE_POLORA.items():
        if config.get(key):
            fix = unsafe(f"Remove {key}", delete_key(key))
            yield Hit(f"Axolotl refuses {key} with optimizer polora: {why}", key, fix)
    if config.get("weight_decay"):
        message = f"weight_decay {config.get('weight_decay')} has no effect: polora has no weight decay"
        fix = safe("Remove weight_decay, which is not read", delete_key("weight_decay"))
        yield Hit(message, "weight_decay", fix, severity=Severity.WARNING)


_ORIG_PARAMS = "fsdp_config.use_orig_params"


@rule(
    id="qgalore-misused",
    also=(Severity.WARNING,),
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: q_galore_adamw8bit\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: q_galore_adamw8bit\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n  use_orig_params: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
)
def qgalore_misused(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Q-GaLore with an adapter, DeepSpeed, FSDP1, or FSDP2 without `use_orig_params`.

    Q-GaLore projects the gradients of full weight matrices to a low rank and keeps its state per parameter. An adapter
    leaves no full matrices to train. DeepSpeed and FSDP1 flatten them. Under FSDP2 it needs `use_orig_params: true` up
    to Axolotl 0.19. Axolotl stops in each of these cases. In fp32 the run works, but the fp32 weights use up most of
    the memory that was saved.
    """
    name, kind = run.optimizer.name, run.adapter.kind
    if name != "q_galore_adamw8bit":
        return
    if kind:
        yield Hit(f"Axolotl refuses optimizer {name} with adapter {kind}: it trains full weight matrices", "adapter")
    yield from _flattened(run, "its projections need whole matrices (DDP or FSDP2)")
    shards = run.sharding.kind == "fsdp2" and not schema_of(run).since("0.20.0")
    if shards and run.config.get(_ORIG_PARAMS) is not True:
        message = f"Axolotl refuses optimizer {name} under FSDP2 without use_orig_params: true"
        yield Hit(message, _ORIG_PARAMS, _keep_originals(run))
    if run.precision.compute == "fp32":
        message = f"optimizer {name} in fp32: the weights take 4 bytes per parameter, more than the optimizer saves"
        yield Hit(message, "bf16", severity=Severity.WARNING)


def _keep_originals(run: RunSpec) -> Fix:
    block = run.config.get("fsdp_config")
    beside = written_key(run, f"fsdp_config.{next(iter(block))}") if block else "fsdp_config"
    return unsafe("Keep the original parameters", insert_key(written_key(run, _ORIG_PARAMS), True, beside=beside))
