"""Axolotl's own rules of one condition and one sentence: optimizer."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import delete_key, insert_key, safe, set_key, unsafe
from vramwise.rules.rows import Case, row
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.trainers.axolotl.spell.edits import written_key
from vramwise.types import Fix, RunSpec, Severity
from vramwise.variants import changes

_row = partial(row, topic="optimizer")

fsdp_offload_8bit_optimizer = _row(
    id="fsdp-offload-8bit-optimizer",
    text="""FSDP1 offloads parameters to host memory while the optimizer is an 8-bit one.

    With `offload_params` the optimizer steps on the CPU, on flat shards; the 8-bit optimizers are made for the GPU.
    Axolotl stops for every optimizer with `8bit` in its name. The state lies in host memory anyway: a plain AdamW
    costs no GPU memory there. FSDP1 ends with Axolotl 0.19; FSDP2 offloads with torchao's 8-bit optimizers too.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\nfsdp_config:\n  offload_params: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch\nfsdp_config:\n  offload_params: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
    when=lambda run: run.sharding.kind == "fsdp1" and run.sharding.offload_params and "8bit" in run.optimizer.name,
    key="optimizer",
    message=lambda run: (
        f"optimizer {run.optimizer.name} with FSDP1 offload: it would step on the CPU, which Axolotl refuses"
    ),
    fix=unsafe("Step on the CPU with AdamW: adamw_torch", set_key("optimizer", "adamw_torch")),
)

galore_without_targets = _row(
    id="galore-without-targets",
    text="""GaLore or APOLLO without `optim_target_modules`.

    Both project the gradients of chosen linear layers to a low rank; that is where the optimizer's memory is saved.
    transformers has no default for the choice and stops while it builds the optimizer. `[attn, mlp]` picks the linear
    layers of attention and MLP by parts of their names, as in GaLore's own examples; `all_linear` picks every one.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw\noptim_target_modules:\n  - attn\n  - mlp\n",
    beyond_trainer="Axolotl accepts it; transformers refuses when it builds the optimizer, after the model has loaded.",
    when=lambda run: (
        run.optimizer.name in schema_of(run).optimizer_group("needs_target_modules")
        and run.config.get("optim_target_modules") is None
    ),
    key="optimizer",
    message=lambda run: (
        f"optimizer {run.optimizer.name} without optim_target_modules: transformers stops after the model loaded"
    ),
    fix=unsafe(
        "Project attention and MLP: optim_target_modules [attn, mlp]",
        insert_key("optim_target_modules", ["attn", "mlp"], beside="optimizer"),
    ),
)

optimizer_unhandled = _row(
    id="optimizer-unhandled",
    explains={"optimizer-unhandled"},
    text="""An optimizer that Axolotl's schema accepts and its trainer then refuses.

    `ao_adamw_4bit` and `ao_adamw_8bit` are still in the list of accepted names, but the code that builds the trainer
    no longer handles them: it raises "Unhandled optimizer" after the model has loaded. transformers has the same
    torchao optimizers under the names `adamw_torch_4bit` and `adamw_torch_8bit`.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: ao_adamw_8bit\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\n",
    beyond_trainer="Axolotl's schema lists the name, but its trainer builder has no case for it and raises.",
    when=lambda run: run.optimizer.name in schema_of(run).optimizer_group("raises_later"),
    key="optimizer",
    message=lambda run: (
        f"optimizer {run.optimizer.name} passes the schema, but Axolotl does not handle it: the run stops after loading"
    ),
    change=changes.handled_optimizer,
)


def _bitsandbytes_8bit(run: RunSpec) -> bool:
    return run.optimizer.name in schema_of(run).optimizer_group("bitsandbytes_8bit")


_TORCHAO = unsafe("Use torchao's 8-bit AdamW: adamw_torch_8bit", set_key("optimizer", "adamw_torch_8bit"))


def _unsharded(run: RunSpec) -> str:
    name = run.optimizer.name
    return f"optimizer {name} with FSDP2: the 8-bit kernels of bitsandbytes do not know sharded parameters"


fsdp2_8bit_optimizer = _row(
    id="fsdp2-8bit-optimizer",
    also=(Severity.WARNING,),
    text="""An 8-bit optimizer of bitsandbytes under FSDP2.

    FSDP2 holds every parameter as a distributed tensor. The kernels of bitsandbytes expect plain tensors of the local
    size: the first optimizer step ends in an illegal memory access (bitsandbytes#1633, open; nothing in 0.50.2
    handles distributed tensors). Axolotl refuses two of the names and lets the paged and the Lion variants through.
    torchao's `adamw_torch_8bit` supports FSDP2 and keeps its state in 8 bits as well.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_8bit\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2",
    beyond_trainer=(
        "Axolotl refuses adamw_8bit and adamw_bnb_8bit only; the other 8-bit optimizers of bitsandbytes use the same "
        "kernels, so they are warned about."
    ),
    when=lambda run: run.sharding.kind == "fsdp2" and _bitsandbytes_8bit(run),
    key="optimizer",
    fix=_TORCHAO,
    first_case=True,
    cases=(
        Case(
            when=lambda run: run.optimizer.name in ("adamw_8bit", "adamw_bnb_8bit"),
            message=lambda run: f"{_unsharded(run)}, Axolotl stops",
        ),
        Case(
            severity=Severity.WARNING,
            message=lambda run: f"{_unsharded(run)}, an illegal memory access is likely at the first step",
        ),
    ),
)


def _unsplit(run: RunSpec) -> str:
    return (
        f"optimizer {run.optimizer.name} with tensor_parallel_size {run.sharding.tensor_parallel_size}: the 8-bit "
        "kernels of bitsandbytes do not know split weights"
    )


tensor_parallel_8bit_optimizer = _row(
    id="tensor-parallel-8bit-optimizer",
    severity=Severity.WARNING,
    also=(Severity.ERROR,),
    text="""An 8-bit optimizer of bitsandbytes with tensor parallelism.

    Tensor parallelism holds the split weights as distributed tensors, as FSDP2 does, and the kernels of bitsandbytes do
    not know those (bitsandbytes#1633). Axolotl refuses AdamW's three names since 0.20. Up to 0.19 the class that holds
    its check is not in use, so nothing is said before the run fails. torchao's `adamw_torch_8bit` handles distributed
    tensors.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_bnb_8bit\ntensor_parallel_size: 2\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_8bit\ntensor_parallel_size: 2\n",
    options="--gpus 2",
    beyond_trainer="Axolotl refuses three of the names, and those only since 0.20: before, its check is never run.",
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
            message=lambda run: f"{_unsplit(run)}, Axolotl stops",
        ),
        Case(message=lambda run: f"{_unsplit(run)}, the first step is likely to fail"),
    ),
)


def _whole_only(why: str) -> tuple[Case, Case]:
    """For optimizers that work on one GPU, DDP and FSDP2, but neither under DeepSpeed nor under FSDP1."""
    return (
        Case(
            when="deepspeed",
            key="deepspeed",
            message=lambda run: f"optimizer {run.optimizer.name} does not work with DeepSpeed: {why}, so Axolotl stops",
        ),
        Case(
            when=lambda run: run.sharding.kind == "fsdp1",
            key="fsdp_version",
            message=lambda run: (
                f"optimizer {run.optimizer.name} with FSDP1 (fsdp_version "
                f"{run.config.get('fsdp_version', 'unset means 1')}): {why}, so Axolotl stops"
            ),
            change=changes.second_fsdp,
        ),
    )


flash_optimizer_sharding_unsupported = _row(
    id="flash-optimizer-sharding-unsupported",
    text="""A flash optimizer together with DeepSpeed or FSDP1.

    `flash_adamw`, `flash_adam`, `flash_sgd`, `flash_sgdw` and `flash_lion` work on each parameter by itself.
    DeepSpeed's ZeRO and FSDP1 replace the parameters by flat shards of many; Axolotl refuses both (FSDP1 is gone since
    0.20). Use DDP or FSDP2.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: flash_adamw\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: flash_adamw\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
    when=lambda run: run.optimizer.name in schema_of(run).optimizer_group("flash"),
    cases=_whole_only("the flash optimizers run on DDP or FSDP2 only"),
)

muon_sharding_unsupported = _row(
    id="muon-sharding-unsupported",
    text="""Muon together with DeepSpeed or FSDP1.

    Muon orthogonalises whole weight matrices. DeepSpeed's ZeRO and FSDP1 flatten the parameters into shards in which
    there are no matrices left, so Axolotl refuses both, for `muon_8bit` (since 0.21) too. It works on one GPU, with
    DDP, and with FSDP2, which keeps every parameter a matrix of its own.
    """,
    bad="optimizer: muon\nfsdp_version: 1\nfsdp_config:\n  reshard_after_forward: true\n",
    good="optimizer: muon\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
    when=lambda run: run.optimizer.name in ("muon", "muon_8bit"),
    cases=_whole_only("it updates whole matrices and runs on DDP or FSDP2 only"),
)


def _drops_gradients(run: RunSpec, what: str) -> str:
    name = run.optimizer.name
    return f"{what} with optimizer {name}: it drops each gradient inside the backward pass, so transformers stops"


def _all_layers(run: RunSpec) -> Fix:
    whole = run.optimizer.name.removesuffix("_layerwise")
    return unsafe(f"Keep the gradients: {whole}", set_key("optimizer", whole))


layerwise_optimizer_unsupported = _row(
    id="layerwise-optimizer-unsupported",
    text="""A layer-wise optimizer with gradient accumulation or on several GPUs.

    Layer-wise GaLore and APOLLO update each layer inside the backward pass and drop its gradient at once, so no
    gradient is left to accumulate or to reduce across GPUs. transformers stops when either is asked for. The variants
    without `_layerwise` keep gradients and take both.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw_layerwise\n"
    "optim_target_modules: [attn, mlp]\ngradient_accumulation_steps: 4\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: galore_adamw_layerwise\n"
    "optim_target_modules: [attn, mlp]\ngradient_accumulation_steps: 1\n",
    beyond_trainer="Axolotl accepts it; transformers refuses when it builds the optimizer, after the model has loaded.",
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
        message=f"{key} {what}: Axolotl stops",
        fix=unsafe(f"Remove {key}", delete_key(key)),
    )


polora_misused = _row(
    id="polora-misused",
    also=(Severity.WARNING,),
    text="""PoLoRA with something that it cannot train or would ignore.

    The `polora` optimizer updates the two factors of LoRA adapters and nothing else. Without an adapter it has nothing
    to do; whole modules, new tokens or DoRA magnitudes would stay untrained; learning rates per group are not read; and
    it needs whole factors, so DeepSpeed, tensor parallelism and FSDP1 are out. Axolotl stops in each case. Weight decay
    is ignored.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: polora\nadapter: lora\nlora_r: 16\nloraplus_lr_ratio: 16\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: polora\nadapter: lora\nlora_r: 16\n",
    when=lambda run: run.optimizer.name == "polora",
    cases=(
        Case(
            when=lambda run: run.adapter.kind not in ("lora", "qlora"),
            key="adapter",
            message=lambda run: (
                f"optimizer polora trains LoRA factors only, adapter is {run.adapter.kind or 'not set'}: Axolotl stops"
            ),
        ),
        *_whole_only("polora needs whole factors (one GPU, DDP or FSDP2)"),
        Case(
            when=lambda run: run.sharding.tensor_parallel_size > 1,
            key="tensor_parallel_size",
            message=lambda run: (
                f"optimizer polora with tensor_parallel_size {run.sharding.tensor_parallel_size}: it needs whole "
                "factors, Axolotl stops"
            ),
        ),
        *(_beside_polora(key, "adds parameters that polora never trains") for key in _NEVER_TRAINED),
        *(_beside_polora(key, "is not read by polora") for key in _IGNORED_RATES),
        _beside_polora("relora_steps", "resets a state that polora does not keep there"),
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
    text="""Q-GaLore where it cannot work: an adapter, DeepSpeed, FSDP1, or FSDP2 without `use_orig_params`.

    Q-GaLore projects the gradients of full weight matrices to a low rank and keeps its state per parameter. An adapter
    leaves no full matrices to train; DeepSpeed and FSDP1 flatten them; under FSDP2 it needs `use_orig_params: true` up
    to Axolotl 0.19. Axolotl stops in each case. In fp32 the run works, but most of the memory that was saved is spent
    on the weights.
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
                f"optimizer {_QGALORE} trains full weight matrices, adapter {run.adapter.kind} leaves none: Axolotl "
                "stops"
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
            message=f"optimizer {_QGALORE} under FSDP2 needs use_orig_params: true: Axolotl stops",
            fix=_keep_originals,
        ),
        Case(
            when=lambda run: run.precision.compute == "fp32",
            severity=Severity.WARNING,
            key="bf16",
            message=(
                f"optimizer {_QGALORE} in fp32: the weights take 4 bytes a parameter, more than the optimizer saves"
            ),
        ),
    ),
)
