"""Axolotl's own rules about optimizers: their settings, and how they can be sharded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.rules.rows import Case, row
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
    topic="optimizer",
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
                key=key,
                message=f"{key} {value} has no effect: optimizer {name} does not read it",
                fix=safe(f"Remove {key}, which is not read", delete_key(key)),
            )
        elif "adamw" not in name:
            yield Hit(
                key=key,
                severity=Severity.INFO,
                message=f"{key} {value} is an AdamW setting that optimizer {name} reads too: check the value",
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
    severity=Severity.ERROR,
    topic="optimizer",
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
            key="optimizer",
            message="optimizer is empty: transformers stops after loading the model",
            fix=unsafe("Delete optimizer: the default is adamw_torch_fused", delete_key("optimizer")),
        )
    elif isinstance(name, str) and name not in schema_of(run).optimizers():
        yield _unknown(schema_of(run), name)


def _unknown(schema: Schema, name: str) -> Hit:
    if when := elsewhere(value_history("optimizer", name), schema.version):
        message = f"optimizer {name!r} {when}: Axolotl {schema.short} stops after loading the model"
        return Hit(key="optimizer", message=message)
    working = schema.optimizers() - schema.optimizer_group("raises_later")
    close = (_CALLED_TODAY[name],) if name in _CALLED_TODAY else suggest(name, working)
    sure = close if len(close) == 1 else tuple(found for found in close if _is_a_slip(name, found))
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return Hit(
        key="optimizer",
        message=f"optimizer {name!r} is unknown: the run stops after loading the model{hint}",
        fix=unsafe(f"Use {sure[0]}", set_key("optimizer", sure[0])) if len(sure) == 1 else None,
    )


def _is_a_slip(written: str, meant: str) -> bool:
    """Whether the names differ only in case and separators, or by one letter too many or too few."""
    long, short = (name.lower().replace("-", "").replace("_", "") for name in (written, meant))
    if len(long) < len(short):
        long, short = short, long
    if len(long) == len(short):
        return long == short
    return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))


_row = partial(row, topic="optimizer")

fsdp_offload_8bit_optimizer = _row(
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

galore_without_targets = _row(
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

optimizer_unhandled = _row(
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


def _unsharded(run: RunSpec) -> str:
    name = run.optimizer.name
    return f"optimizer {name} with FSDP2: the 8-bit kernels of bitsandbytes do not support sharded parameters"


fsdp2_8bit_optimizer = _row(
    id="fsdp2-8bit-optimizer",
    also=(Severity.WARNING,),
    text="""An 8-bit optimizer of bitsandbytes under FSDP2.

    FSDP2 stores every parameter as a distributed tensor. The kernels of bitsandbytes expect plain tensors of the local
    size, so the first optimizer step ends in an illegal memory access (bitsandbytes#1633, open; version 0.50.2 does not
    support distributed tensors). Axolotl refuses two of the names and accepts the paged and the Lion variants.
    torchao's `adamw_torch_8bit` supports FSDP2 and also keeps its state in 8 bits.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_8bit\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2",
    beyond_trainer=(
        "Axolotl refuses only adamw_8bit and adamw_bnb_8bit; the other 8-bit optimizers of bitsandbytes use the same "
        "kernels."
    ),
    when=lambda run: run.sharding.kind == "fsdp2" and _bitsandbytes_8bit(run),
    key="optimizer",
    fix=_TORCHAO,
    first_case=True,
    cases=(
        Case(
            when=lambda run: run.optimizer.name in ("adamw_8bit", "adamw_bnb_8bit"),
            message=lambda run: f"{_unsharded(run)}, so Axolotl stops",
        ),
        Case(
            severity=Severity.WARNING,
            message=lambda run: f"{_unsharded(run)}, so an illegal memory access is likely at the first step",
        ),
    ),
)


def _unsplit(run: RunSpec) -> str:
    return (
        f"optimizer {run.optimizer.name} with tensor_parallel_size {run.sharding.tensor_parallel_size}: the 8-bit "
        "kernels of bitsandbytes do not support split weights"
    )


tensor_parallel_8bit_optimizer = _row(
    id="tensor-parallel-8bit-optimizer",
    severity=Severity.WARNING,
    also=(Severity.ERROR,),
    text="""An 8-bit optimizer of bitsandbytes with tensor parallelism.

    Tensor parallelism stores the split weights as distributed tensors, as FSDP2 does, and the kernels of bitsandbytes
    do not support those (bitsandbytes#1633). Since 0.20 Axolotl refuses the three AdamW names. Up to 0.19 its check is
    never run, so the run fails without warning. torchao's `adamw_torch_8bit` supports distributed tensors.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_bnb_8bit\ntensor_parallel_size: 2\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\ntensor_parallel_size: 2\n",
    options="--gpus 2",
    beyond_trainer="Axolotl refuses only three of the names, and only since 0.20: before, its check is never run.",
    when=lambda run: run.sharding.tensor_parallel_size > 1 and _bitsandbytes_8bit(run),
    key="optimizer",
    fix=_TORCHAO,
    first_case=True,
    cases=(
        Case(
            when=lambda run: (
                schema_of(run).since("0.20.0")
                and run.optimizer.name in ("paged_adamw_8bit", "adamw_8bit", "adamw_bnb_8bit")
            ),
            severity=Severity.ERROR,
            message=lambda run: f"{_unsplit(run)}, so Axolotl stops",
        ),
        Case(message=lambda run: f"{_unsplit(run)}, so the first step is likely to fail"),
    ),
)


def _whole_only(why: str) -> tuple[Case, Case]:
    """Cases for optimizers that work on one GPU, with DDP and FSDP2, but not with DeepSpeed or FSDP1."""
    return (
        Case(
            when="deepspeed",
            key="deepspeed",
            message=lambda run: f"Axolotl refuses optimizer {run.optimizer.name} with DeepSpeed: {why}",
        ),
        Case(
            when=lambda run: run.sharding.kind == "fsdp1",
            key="fsdp_version",
            message=lambda run: (
                f"Axolotl refuses optimizer {run.optimizer.name} with FSDP1 (fsdp_version "
                f"{run.config.get('fsdp_version', 'unset means 1')}): {why}"
            ),
            change=changes.second_fsdp,
        ),
    )


flash_optimizer_sharding_unsupported = _row(
    id="flash-optimizer-sharding-unsupported",
    text="""A flash optimizer together with DeepSpeed or FSDP1.

    `flash_adamw`, `flash_adam`, `flash_sgd`, `flash_sgdw` and `flash_lion` update each parameter separately.
    DeepSpeed's ZeRO and FSDP1 replace the parameters with flat shards of many, so Axolotl refuses both (0.20 removed
    FSDP1). Use DDP or FSDP2.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: flash_adamw\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: flash_adamw\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
    when=lambda run: run.optimizer.name in schema_of(run).optimizer_group("flash"),
    cases=_whole_only("the flash optimizers need DDP or FSDP2"),
)

muon_sharding_unsupported = _row(
    id="muon-sharding-unsupported",
    text="""Muon together with DeepSpeed or FSDP1.

    Muon orthogonalises whole weight matrices. DeepSpeed's ZeRO and FSDP1 flatten the parameters into shards that
    contain no matrices, so Axolotl refuses both. This also applies to `muon_8bit` (since 0.21). Muon works on one GPU,
    with DDP, and with FSDP2, which keeps every parameter as a separate matrix.
    """,
    bad="optimizer: muon\nfsdp_version: 1\nfsdp_config:\n  reshard_after_forward: true\n",
    good="optimizer: muon\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
    when=lambda run: run.optimizer.name in ("muon", "muon_8bit"),
    cases=_whole_only("it updates whole matrices and needs DDP or FSDP2"),
)


def _drops_gradients(run: RunSpec, what: str) -> str:
    name = run.optimizer.name
    return f"transformers refuses {what} with optimizer {name}, which drops each gradient during the backward pass"


def _all_layers(run: RunSpec) -> Fix:
    whole = run.optimizer.name.removesuffix("_layerwise")
    return unsafe(f"Keep the gradients: {whole}", set_key("optimizer", whole))


layerwise_optimizer_unsupported = _row(
    id="layerwise-optimizer-unsupported",
    text="""A layer-wise optimizer with gradient accumulation or on several GPUs.

    Layer-wise GaLore and APOLLO update each layer during the backward pass and drop its gradient at once, so no
    gradient is left to accumulate or to reduce across GPUs. transformers refuses both. The variants without
    `_layerwise` keep gradients and support both.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw_layerwise\n"
    "optim_target_modules: [attn, mlp]\ngradient_accumulation_steps: 4\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw_layerwise\n"
    "optim_target_modules: [attn, mlp]\ngradient_accumulation_steps: 1\n",
    beyond_trainer="Axolotl accepts it; transformers refuses it when it builds the optimizer, after loading the model.",
    when=lambda run: (
        run.optimizer.name.endswith("_layerwise")
        and run.optimizer.name in schema_of(run).optimizer_group("needs_target_modules")
    ),
    fix=_all_layers,
    cases=(
        Case(
            when=lambda run: run.batch.gradient_accumulation_steps != 1,
            key="gradient_accumulation_steps",
            message=lambda run: _drops_gradients(
                run, f"gradient_accumulation_steps {run.batch.gradient_accumulation_steps}"
            ),
        ),
        Case(
            when=lambda run: run.batch.gpus > 1,
            key="optimizer",
            message=lambda run: _drops_gradients(run, f"{run.batch.gpus} GPUs"),
        ),
    ),
)

_NEVER_TRAINED = (
    "lora_modules_to_save",
    "unfrozen_parameters",
    "peft_use_dora",
    "peft_trainable_token_indices",
    "lisa_step_interval",
    "reward_model",
    "process_reward_model",
)

_IGNORED_RATES = ("loraplus_lr_ratio", "lr_groups", "embedding_lr", "embedding_lr_scale")


def _beside_polora(key: str, what: str) -> Case:
    return Case(
        when=key,
        key=key,
        message=f"Axolotl refuses {key} with optimizer polora: {what}",
        fix=unsafe(f"Remove {key}", delete_key(key)),
    )


polora_misused = _row(
    id="polora-misused",
    also=(Severity.WARNING,),
    text="""PoLoRA with a setting that it does not support.

    The `polora` optimizer updates only the two factors of LoRA adapters. Without an adapter it has nothing to train.
    Whole modules, new tokens or DoRA magnitudes would stay untrained. It does not read learning rates per group. It
    needs whole factors, so DeepSpeed, tensor parallelism and FSDP1 do not work. Axolotl stops in each of these cases.
    Weight decay has no effect.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: polora\nadapter: lora\nlora_r: 16\nloraplus_lr_ratio: 16\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: polora\nadapter: lora\nlora_r: 16\n",
    when=lambda run: run.optimizer.name == "polora",
    cases=(
        Case(
            when=lambda run: run.adapter.kind not in ("lora", "qlora"),
            key="adapter",
            message=lambda run: (
                f"Axolotl refuses optimizer polora with adapter {run.adapter.kind or 'unset'}: it trains only LoRA "
                "factors"
            ),
        ),
        *_whole_only("polora needs whole factors (one GPU, DDP or FSDP2)"),
        Case(
            when=lambda run: run.sharding.tensor_parallel_size > 1,
            key="tensor_parallel_size",
            message=lambda run: (
                f"Axolotl refuses optimizer polora with tensor_parallel_size {run.sharding.tensor_parallel_size}: it "
                "needs whole factors"
            ),
        ),
        *(_beside_polora(key, "it adds parameters that polora never trains") for key in _NEVER_TRAINED),
        *(_beside_polora(key, "polora does not read it") for key in _IGNORED_RATES),
        _beside_polora("relora_steps", "it resets a state that polora does not keep there"),
        Case(
            when="weight_decay",
            severity=Severity.WARNING,
            key="weight_decay",
            message=lambda run: (
                f"weight_decay {run.config.get('weight_decay')} has no effect: polora has no weight decay"
            ),
            fix=safe("Remove weight_decay, which is not read", delete_key("weight_decay")),
        ),
    ),
)


_QGALORE = "q_galore_adamw8bit"
_ORIG_PARAMS = "fsdp_config.use_orig_params"


def _keep_originals(run: RunSpec) -> Fix:
    block = run.config.get("fsdp_config")
    beside = written_key(run, f"fsdp_config.{next(iter(block))}") if block else "fsdp_config"
    return unsafe("Keep the original parameters", insert_key(written_key(run, _ORIG_PARAMS), True, beside=beside))


qgalore_misused = _row(
    id="qgalore-misused",
    also=(Severity.WARNING,),
    text="""Q-GaLore with an adapter, DeepSpeed, FSDP1, or FSDP2 without `use_orig_params`.

    Q-GaLore projects the gradients of full weight matrices to a low rank and keeps its state per parameter. An adapter
    leaves no full matrices to train. DeepSpeed and FSDP1 flatten them. Under FSDP2 it needs `use_orig_params: true` up
    to Axolotl 0.19. Axolotl stops in each of these cases. In fp32 the run works, but the fp32 weights use up most of
    the memory that was saved.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: q_galore_adamw8bit\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: q_galore_adamw8bit\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n  use_orig_params: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
    when=lambda run: run.optimizer.name == _QGALORE,
    cases=(
        Case(
            when=lambda run: run.adapter.kind,
            key="adapter",
            message=lambda run: (
                f"Axolotl refuses optimizer {_QGALORE} with adapter {run.adapter.kind}: it trains full weight matrices"
            ),
        ),
        *_whole_only("its projections need whole matrices (DDP or FSDP2)"),
        Case(
            when=lambda run: (
                run.sharding.kind == "fsdp2"
                and not schema_of(run).since("0.20.0")
                and run.config.get(_ORIG_PARAMS) is not True
            ),
            key=_ORIG_PARAMS,
            message=f"Axolotl refuses optimizer {_QGALORE} under FSDP2 without use_orig_params: true",
            fix=_keep_originals,
        ),
        Case(
            when=lambda run: run.precision.compute == "fp32",
            severity=Severity.WARNING,
            key="bf16",
            message=(
                f"optimizer {_QGALORE} in fp32: the weights take 4 bytes per parameter, more than the optimizer saves"
            ),
        ),
    ),
)
