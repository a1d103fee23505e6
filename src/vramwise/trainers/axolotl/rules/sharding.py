"""Axolotl's own rules about several cards: FSDP, DeepSpeed, context and expert parallelism, vLLM."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.facts.attention import base_name
from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import loaded_plugins
from vramwise.trainers.axolotl.schema import Schema, schema_of
from vramwise.trainers.axolotl.spell.edits import PREFERENCE_TRAINING, choose_fsdp_version, written_key
from vramwise.types import Edit, RunSpec, Severity
from vramwise.units import gib
from vramwise.variants import changes


@rule(
    id="context-parallel-misused",
    bad="base_model: meta-llama/Llama-3.2-1B\ncontext_parallel_size: 2\nattn_implementation: sdpa\n",
    good="base_model: meta-llama/Llama-3.2-1B\ncontext_parallel_size: 2\nattn_implementation: flash_attention_2\n",
    options="--gpus 2 --with axolotl==0.19.0",
)
def context_parallel_misused(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Context parallelism with an attention or a batch that it does not support.

    Context parallelism splits each sequence across GPUs. Up to Axolotl 0.19 it uses ring attention, which supports only
    FlashAttention 2. With `sample_packing` it processes one row at a time, so `micro_batch_size` must be 1. Since 0.20
    every attention except `eager` works, with several packed rows too. GLM's own sparse-attention kernels do not
    support packed rows. Under DeepSpeed (since 0.21) only SFT works. Otherwise Axolotl stops.
    """
    size, schema = run.sharding.context_parallel_size, schema_of(run)
    if size <= 1:
        return
    if schema.since("0.20.0"):
        yield from _by_plugin(run, schema)
        return
    if run.config.get("use_glm_dsa_kernels"):
        return  # they have their own way of splitting sequences
    if base_name(run.kernels.attn_implementation) != "flash_attention_2":
        yield Hit(
            field="attn_implementation",
            message=(
                f"Axolotl refuses context_parallel_size {size} with {run.kernels.attn_implementation} attention: ring "
                "attention needs flash_attention_2"
            ),
            change=changes.flash_attention(run),
        )
    yield from _packed_rows(run)


def _by_plugin(run: RunSpec, schema: Schema) -> Iterator[Hit]:
    size, own_kernels = run.sharding.context_parallel_size, bool(run.config.get("use_glm_dsa_kernels"))
    if run.kernels.attn_implementation == "eager" and not own_kernels:
        yield Hit(
            f"Axolotl refuses context_parallel_size {size} with eager attention",
            run.origins["attn_implementation"].key or "attn_implementation",
            change=changes.fused_attention(run),
        )
    if own_kernels and (run.shapes.sample_packing or run.config.get("batch_flattening")):
        message = f"Axolotl refuses use_glm_dsa_kernels with context_parallel_size {size} and packed rows"
        yield Hit(message, "use_glm_dsa_kernels")
    if run.config.get("deepspeed") and schema.since("0.21.0") and (run.objective.rl or own_kernels):
        what = f"rl {run.objective.rl}" if run.objective.rl else "use_glm_dsa_kernels"
        message = f"Axolotl refuses {what} with context_parallel_size {size} under DeepSpeed; use FSDP2"
        yield Hit(message, "deepspeed")


def _packed_rows(run: RunSpec) -> Iterator[Hit]:
    micro = run.batch.micro_batch_size
    if not run.shapes.sample_packing or micro == 1:
        return
    yield Hit(
        f"Axolotl refuses micro_batch_size {micro} with context_parallel_size "
        f"{run.sharding.context_parallel_size} and sample_packing: it must be 1",
        "micro_batch_size",
        change=changes.one_row(run),
    )


_EXPERTS = "expert_parallel_size"
_PLUGIN = "axolotl.integrations.expert_parallel.ExpertParallelPlugin"
_WANTED = "FULL_STATE_DICT"
# Their state would be loaded unquantised from a checkpoint of sharded experts.
_OPTIMIZERS = ("adamw_torch_4bit", "ao_adamw_4bit", "ao_adamw_fp8")
_OFFLOADERS = (True, "legacy", "disk")


@rule(
    id="expert-parallel-misused",
    bad=(
        "base_model: Qwen/Qwen3-30B-A3B\nexpert_parallel_size: 2\n"
        "fsdp_config:\n  reshard_after_forward: true\n  state_dict_type: SHARDED_STATE_DICT\n"
    ),
    good=(
        "base_model: Qwen/Qwen3-30B-A3B\nexpert_parallel_size: 2\n"
        "fsdp_config:\n  reshard_after_forward: true\n  state_dict_type: FULL_STATE_DICT\n"
    ),
    options="--gpus 2",
)
def expert_parallel_misused(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Expert parallelism with settings that Axolotl cannot train or save.

    With `expert_parallel_size` above 1 each GPU holds some of the experts. Since 0.20 Axolotl has these requirements
    and stops otherwise. FSDP2 must shard the rest (`fsdp_config`). Checkpoints must be gathered whole
    (`state_dict_type: FULL_STATE_DICT`), because sharded ones would keep only the experts of one group. The optimizer
    must keep its state in 8 bits or more, and tensor parallelism must be off. With `expert_parallel_backend: torch`
    checkpointing must be non-reentrant, without an offloader that replaces it.
    """
    size, schema = run.config.get(_EXPERTS), schema_of(run)
    if not schema.since("0.20.0") or not isinstance(size, int) or size <= 1 or _PLUGIN not in loaded_plugins(run):
        return
    if not run.config.get("fsdp_config"):
        yield Hit(f"Axolotl refuses {_EXPERTS} {size} without fsdp_config: it needs FSDP2", _EXPERTS)
    else:
        yield from _expert_state_dict(run, size)
    if run.optimizer.name in _OPTIMIZERS:
        yield Hit(
            f"Axolotl refuses optimizer {run.optimizer.name} with {_EXPERTS} {size}: its state cannot be saved",
            "optimizer",
            unsafe("Use adamw_torch_8bit", set_key("optimizer", "adamw_torch_8bit")),
        )
    if run.sharding.tensor_parallel_size > 1:
        tensor = f"tensor_parallel_size {run.sharding.tensor_parallel_size}"
        yield Hit(f"Axolotl refuses {_EXPERTS} {size} together with {tensor}", _EXPERTS)
    if run.config.get("expert_parallel_backend") == "torch" and run.savings.gradient_checkpointing:
        yield from _expert_checkpointing(run)


def _expert_state_dict(run: RunSpec, size: int) -> Iterator[Hit]:
    for name in ("state_dict_type", "final_state_dict_type"):
        key = f"fsdp_config.{name}"
        value = run.config.get(key)
        if value == _WANTED or (value is None and name != "state_dict_type"):
            continue
        found = value or "SHARDED_STATE_DICT (the default)"
        first = f"fsdp_config.{next(iter(run.config.get('fsdp_config')))}"
        edit = insert_key(written_key(run, key), _WANTED, beside=written_key(run, first))
        yield Hit(
            f"Axolotl refuses {_EXPERTS} {size} with {key} {found}: checkpoints would lose experts",
            key,
            unsafe(f"Gather whole checkpoints: {_WANTED}", edit),
        )


def _expert_checkpointing(run: RunSpec) -> Iterator[Hit]:
    backend = "expert_parallel_backend: torch"
    if run.config.get("gradient_checkpointing_kwargs.use_reentrant"):
        key = "gradient_checkpointing_kwargs.use_reentrant"
        message = f"Axolotl refuses {backend} with use_reentrant: true: it needs non-reentrant checkpointing"
        yield Hit(message, key, unsafe("Set use_reentrant: false", set_key(key, False)))
    mode = run.config.get("activation_offloading")
    if mode in _OFFLOADERS:
        written = str(mode).lower()
        message = f"Axolotl refuses {backend} with activation_offloading: {written}, which replaces checkpointing"
        yield Hit(message, "activation_offloading")


_VLLM_SHARE = "vllm.gpu_memory_utilization"
_TRL_DEFAULT = 0.3


@rule(
    id="vllm-colocate-shares-memory",
    severity=Severity.WARNING,
    also=(Severity.INFO,),
    bad="rl: grpo\ntrl:\n  use_vllm: true\n  vllm_mode: colocate\n",
    good="rl: grpo\ntrl:\n  use_vllm: true\n  vllm_mode: colocate\nvllm:\n  gpu_memory_utilization: 0.3\n",
    beyond_trainer="Axolotl accepts it; up to 0.20 it gives vLLM 0.9 of the card, while TRL's default is 0.3.",
    options="--with axolotl==0.20.0",
)
def vllm_colocate_shares_memory(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """vLLM reserves most of the card that is used for training.

    With `trl.vllm_mode: colocate` vLLM reserves `vllm.gpu_memory_utilization` of the whole card for its weights and
    cache, and training must fit into the rest. If the key is unset, Axolotl up to 0.20 passes 0.9, which hardly ever
    fits next to the model that is loaded for training. Since 0.21 TRL's default applies, 0.3. The rule reports a share
    above one half. With `trl.vllm_enable_sleep_mode: true` vLLM frees its share during training, and the finding is
    only a note. `vllm_mode: server` moves vLLM to other cards.
    """
    if not run.config.get("trl.use_vllm") or run.config.get("trl.vllm_mode") != "colocate":
        return
    share = run.config.get(_VLLM_SHARE, schema_of(run).defaults("vllm").get("gpu_memory_utilization", _TRL_DEFAULT))
    if not isinstance(share, int | float) or share <= 0.5:
        return
    sleeps = run.config.get("trl.vllm_enable_sleep_mode") is True
    default = ", the default" if run.config.get(_VLLM_SHARE) is None else ""
    yield Hit(
        f"vllm_mode colocate: vLLM reserves {share:g} of the card{_size(run, share)}{default}, and training must "
        f"fit into the other {1 - share:.2g}{' whenever vLLM is awake' if sleeps else ''}",
        _VLLM_SHARE,
        unsafe(f"Give vLLM {_TRL_DEFAULT}, TRL's default", _give_vllm(run)),
        severity=Severity.INFO if sleeps else Severity.WARNING,
    )


def _size(run: RunSpec, share: float) -> str:
    gpu = run.target.gpu
    return "" if gpu is None else f" ({share:g} × {gib(gpu.memory_bytes)} = {gib(int(share * gpu.memory_bytes))})"


def _give_vllm(run: RunSpec) -> Edit:
    block = run.config.get("vllm")
    if block:
        return insert_key(_VLLM_SHARE, _TRL_DEFAULT, beside=f"vllm.{next(iter(block))}")
    return insert_key("vllm", {"gpu_memory_utilization": _TRL_DEFAULT}, beside="trl")


_EFFICIENT = "fsdp_config.cpu_ram_efficient_loading"
_PINNED = "fsdp_config.cpu_offload_pin_memory"
_POLICY = "fsdp_config.auto_wrap_policy"
_SIZE = "fsdp_config.min_num_params"
_TORCH_DEFAULT = 100_000_000  # torch's size_based_auto_wrap_policy

deepcompile_without_deepspeed = row(
    id="deepcompile-without-deepspeed",
    text="""`deepcompile` without DeepSpeed.

    DeepCompile is part of DeepSpeed, so Axolotl stops if `deepspeed` is not set. Set it, or use `torch_compile`.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\ndeepcompile: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\ndeepcompile: true\ndeepspeed: deepspeed_configs/zero3.json\n",
    options="--gpus 2",
    when=lambda run: run.config.get("deepcompile") and not run.config.get("deepspeed"),
    key="deepcompile",
    message="Axolotl refuses deepcompile without deepspeed: DeepCompile is part of DeepSpeed",
    fix=unsafe("Remove deepcompile", delete_key("deepcompile")),
)

deepspeed_file_missing = row(
    id="deepspeed-file-missing",
    severity=Severity.INFO,
    text="""The DeepSpeed file cannot be read, so its ZeRO stage is unknown.

    The stage decides what is split across the GPUs: optimizer state (1), also gradients (2), also weights (3). vramwise
    reads a file beside the config or under the current folder, and knows the names that Axolotl ships (`zero1.json`,
    `zero3_bf16.json`…) without the file. For any other file it assumes stage 2 without offload.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\ndeepspeed: configs/our-cluster.json\n",
    good="base_model: meta-llama/Llama-3.2-1B\ndeepspeed: deepspeed_configs/zero3.json\n",
    options="--gpus 2",
    beyond_trainer="vramwise could not read the stage, which decides most of the memory that a GPU needs.",
    when=lambda run: run.origins["sharding"].kind == "assumed",
    key="deepspeed",
    message=lambda run: (
        f"deepspeed {run.config.get('deepspeed')} cannot be read, so its ZeRO stage is unknown; stage 2 is assumed"
    ),
)


def _fsdp_key(run: RunSpec) -> str:
    return "fsdp_config" if schema_of(run).since("0.20.0") else "fsdp"


falcon_fsdp = row(
    id="falcon-fsdp",
    text="""A Falcon model under FSDP.

    Axolotl stops if `falcon` is in the name of the base model and `fsdp_config` is set. Up to 0.19 it checks only the
    old key `fsdp`. Shard Falcon with DeepSpeed, or train it with an adapter on each GPU.
    """,
    bad="base_model: tiiuae/falcon-7b\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: tiiuae/falcon-7b\ndeepspeed: deepspeed_configs/zero2.json\n",
    options="--gpus 2",
    when=lambda run: run.config.get(_fsdp_key(run)) and "falcon" in (run.base_model or "").lower(),
    key=_fsdp_key,
    message=lambda run: f"Axolotl refuses {_fsdp_key(run)} with {run.base_model}: it does not support FSDP for Falcon",
)


def _staged_on_the_cpu(run: RunSpec) -> bool:
    if not schema_of(run).since("0.20.0"):
        return False
    return bool(run.config.get("qlora_sharded_model_loading", run.adapter.kind == "qlora"))


fsdp2_efficient_loading_4bit = row(
    id="fsdp2-efficient-loading-4bit",
    text="""FSDP2 loads a 4-bit base with `cpu_ram_efficient_loading`.

    Efficient loading reads the weights on rank 0 only and scatters them. With 4 bits rank 0 holds packed weights while
    the others expect unpacked shapes, and the scatter hangs. Axolotl 0.19 refuses the combination; 0.18 hangs. With the
    option off, every rank reads the checkpoint: loading needs more host memory, and training is the same.

    Since 0.20 rank 0 quantises on its CPU (`qlora_sharded_model_loading`, on by default with `adapter: qlora`), which
    works. Without it Axolotl stops as before.
    """,
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\n"
        "fsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\n"
        "fsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: false\n"
    ),
    options="--gpus 2 --with axolotl==0.19.0",
    when=lambda run: (
        run.sharding.kind == "fsdp2"
        and run.config.get(_EFFICIENT)
        and run.config.get("load_in_4bit")
        and not _staged_on_the_cpu(run)
        # 0.12 refuses it too; what 0.9 to 0.11 and 0.13 to 0.17 do was not tried
        and (schema_of(run).since("0.18.0") or schema_of(run).version.startswith("0.12."))
    ),
    key=_EFFICIENT,
    message="Axolotl refuses cpu_ram_efficient_loading with load_in_4bit under FSDP2: loading would hang",
    fix=lambda run: safe("Load on every rank", set_key(written_key(run, _EFFICIENT), False)),
)

fsdp2_torch_too_old = row(
    id="fsdp2-torch-too-old",
    text="""FSDP2 on a torch before 2.7.

    Axolotl needs the `fully_shard` of torch 2.7 for FSDP2. Up to 0.20 it refuses an older torch. Since 0.21 it requires
    a newer torch at installation and does not check at run time, so sharding fails when the model is wrapped. Upgrade
    torch.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2 --torch 2.6",
    good_options="--gpus 2 --torch 2.7",
    when=lambda run: run.sharding.kind == "fsdp2" and run.config.get("fsdp_config") and run.target.torch < (2, 7),
    key="fsdp_version",
    message=lambda run: (
        f"FSDP2 needs torch 2.7 or newer, but this is torch {'.'.join(str(part) for part in run.target.torch)}: "
        f"{'sharding fails when the model is wrapped' if schema_of(run).since('0.21.0') else 'Axolotl stops'}"
    ),
)


def _must_pin(run: RunSpec) -> str | None:
    if run.sharding.kind == "fsdp1":
        return "FSDP1 always pins offloaded parameters"
    offloads = run.config.get("fsdp_config.offload_params")
    return None if offloads else "offload_params is off, so nothing is offloaded"


fsdp_offload_pin_memory = row(
    id="fsdp-offload-pin-memory",
    text="""Pinned memory is off, but FSDP1 always pins, or nothing is offloaded.

    `cpu_offload_pin_memory: false` allows offloaded parameters to be swapped out on a host that is short of memory.
    FSDP1 always pins, and without `offload_params` nothing is offloaded, so Axolotl stops in both cases. Pinning, the
    default, does not change results.
    """,
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\n"
        "fsdp_config:\n  cpu_offload_pin_memory: false\n  reshard_after_forward: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\n"
        "fsdp_config:\n  cpu_offload_pin_memory: false\n  offload_params: true\n"
    ),
    options="--gpus 2",
    when=lambda run: run.config.get(_PINNED) is False and _must_pin(run),
    key=_PINNED,
    message=lambda run: f"Axolotl refuses cpu_offload_pin_memory: false: {_must_pin(run)}",
    fix=lambda run: safe("Pin memory, the default", set_key(written_key(run, _PINNED), True)),
)

fsdp_size_wrap_without_size = row(
    id="fsdp-size-wrap-without-size",
    text="""FSDP wraps modules by size, but no size is set.

    `auto_wrap_policy: SIZE_BASED_WRAP` shards every module above `min_num_params` parameters as a unit, and Axolotl
    stops if the number is missing. A unit is gathered as a whole: the larger it is, the higher the memory peak.
    TRANSFORMER_BASED_WRAP uses the model's layers as units and needs no number.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  auto_wrap_policy: SIZE_BASED_WRAP\n",
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\n"
        "fsdp_config:\n  auto_wrap_policy: SIZE_BASED_WRAP\n  min_num_params: 100000000\n"
    ),
    options="--gpus 2",
    when=lambda run: run.config.get(_POLICY) == "SIZE_BASED_WRAP" and run.config.get(_SIZE) is None,
    key=_POLICY,
    message="Axolotl refuses auto_wrap_policy SIZE_BASED_WRAP without min_num_params",
    fix=lambda run: unsafe(
        f"Set min_num_params to {_TORCH_DEFAULT}, torch's default",
        insert_key(written_key(run, _SIZE), _TORCH_DEFAULT, beside=written_key(run, _POLICY)),
    ),
)

gpt_oss_efficient_loading = row(
    id="gpt-oss-efficient-loading",
    text="""An MXFP4 checkpoint (gpt-oss) is loaded with `cpu_ram_efficient_loading`.

    With `model_quantization_config: Mxfp4Config` the weights are unpacked while they are read, which must happen on
    every rank. Efficient loading reads them on rank 0 only, so Axolotl stops. With it off, loading needs more host
    memory and training is the same.
    """,
    bad=(
        "base_model: openai/gpt-oss-20b\nmodel_quantization_config: Mxfp4Config\n"
        "fsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: true\n"
    ),
    good=(
        "base_model: openai/gpt-oss-20b\nmodel_quantization_config: Mxfp4Config\n"
        "fsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: false\n"
    ),
    options="--gpus 2",
    when=lambda run: (
        run.config.get("model_quantization_config") == "Mxfp4Config" and run.config.get(_EFFICIENT) is True
    ),
    key=_EFFICIENT,
    message="Axolotl refuses cpu_ram_efficient_loading for an Mxfp4Config model under FSDP",
    fix=lambda run: safe("Load on every rank", set_key(written_key(run, _EFFICIENT), False)),
)

vllm_mode_unset = row(
    id="vllm-mode-unset",
    severity=Severity.INFO,
    text="""vLLM is on, but `vllm_mode` is unset.

    `trl.use_vllm: true` without `vllm_mode` means `server`: training waits for a vLLM server that you start yourself on
    other cards. `colocate` shares the training card. Set the mode you want.
    """,
    bad="rl: grpo\nmicro_batch_size: 4\ntrl:\n  use_vllm: true\n  num_generations: 4\n",
    good="rl: grpo\nmicro_batch_size: 4\ntrl:\n  use_vllm: true\n  vllm_mode: server\n  num_generations: 4\n",
    when=lambda run: run.config.get("trl.use_vllm") and not run.config.get("trl.vllm_mode"),
    key="trl.use_vllm",
    message="trl.use_vllm without vllm_mode means server: training waits for a vLLM server on other cards",
    fix=safe("Set vllm_mode: server, the default", insert_key("trl.vllm_mode", "server", beside="trl.use_vllm")),
)


@rule(
    id="deepspeed-with-fsdp",
    also=(Severity.WARNING,),
    bad="base_model: meta-llama/Llama-3.2-1B\ndeepspeed: deepspeed_configs/zero2.json\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2",
    beyond_trainer=(
        "Up to 0.19 Axolotl refuses `fsdp` with `deepspeed`, but accepts `fsdp_config`; in SFT transformers then "
        "refuses both after the model has loaded, in RL DeepSpeed is ignored."
    ),
)
def deepspeed_with_fsdp(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """DeepSpeed and FSDP are both configured.

    Only one can shard the run. Since 0.20 Axolotl stops. Up to 0.19 it checks the old `fsdp` key and misses
    `fsdp_config`. It then prepares FSDP and passes the DeepSpeed file to transformers, whose trainer refuses both when
    it is built, after the model has loaded. In RL Axolotl does not pass the DeepSpeed file on, so FSDP runs and
    DeepSpeed is ignored. Remove one.
    """
    if not run.config.get("deepspeed") or not run.sharding.is_fsdp:
        return
    both = f"deepspeed and {'fsdp' if run.config.get('fsdp') else 'fsdp_config'} are both set"
    title, edit = "Keep FSDP: remove deepspeed", delete_key("deepspeed")
    if run.config.get("fsdp") or schema_of(run).since("0.20.0"):
        yield Hit(f"{both}, which Axolotl refuses", "deepspeed", unsafe(title, edit))
    elif run.objective.rl is not None:
        message = f"{both}: FSDP runs and DeepSpeed is ignored"
        yield Hit(message, "deepspeed", safe(title, edit), severity=Severity.WARNING)
    else:
        message = f"{both}: Axolotl accepts this, but transformers stops after loading the model"
        yield Hit(message, "deepspeed", unsafe(title, edit))


@rule(
    id="fp32-norms-misused",
    also=(Severity.WARNING,),
    bad="base_model: meta-llama/Llama-3.2-1B\nfp32_norms: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfp32_norms: true\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2",
)
def fp32_norms_misused(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`fp32_norms` without FSDP2.

    The option keeps the norms in fp32 while FSDP2 runs the layers in bf16. FSDP1 needs one dtype in each flat group,
    and without FSDP the option does not apply, so Axolotl stops. `fp32_norm_classes` alone has no effect.
    """
    if not run.config.get("fp32_norms"):
        if run.config.get("fp32_norm_classes"):
            key = "fp32_norm_classes"
            fix = safe(f"Remove {key}, which has no effect", delete_key(key))
            yield Hit(f"{key} has no effect while fp32_norms is off", key, fix, severity=Severity.WARNING)
    elif run.config.get("fsdp_config") is None:
        message = "Axolotl refuses fp32_norms without fsdp_config: it is an option of FSDP2"
        yield Hit(message, "fp32_norms", unsafe("Remove fp32_norms", delete_key("fp32_norms")))
    elif run.sharding.kind == "fsdp1":
        message = "Axolotl refuses fp32_norms under FSDP1, which needs one dtype for norms and layers"
        yield Hit(message, "fp32_norms", change=changes.second_fsdp(run))


@rule(
    id="fsdp1-deprecated",
    explains={"fsdp-mixed-dtypes", "fsdp-mixed-frozen"},
    severity=Severity.INFO,
    also=(Severity.ERROR,),
    bad="base_model: meta-llama/Llama-3.2-1B\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2 --with axolotl==0.19.0",
)
def fsdp1_deprecated(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """FSDP1 is deprecated, and Axolotl 0.20 removed it.

    Up to 0.19 an `fsdp_config` without `fsdp_version` means version 1. Since 0.20 it means 2, and Axolotl refuses any
    other version. FSDP2 shards each parameter separately instead of in flat groups and frees memory earlier. When you
    switch, check the keys of the block: sharding_strategy becomes reshard_after_forward.
    """
    version, schema = run.config.get("fsdp_version"), schema_of(run)
    if schema.since("0.20.0"):
        if version is not None and str(version) != "2":
            message = f"Axolotl {schema.short} refuses fsdp_version {version}: 0.20 removed FSDP1"
            fix = unsafe("Shard with FSDP2: fsdp_version: 2", choose_fsdp_version(run, 2))
            yield Hit(message, "fsdp_version", fix, severity=Severity.ERROR)
    elif run.sharding.kind == "fsdp1" and run.config.get("fsdp_config"):
        found = f"fsdp_version is {version}" if version else "fsdp_version is unset, which means 1"
        message = f"{found}: FSDP1 is deprecated, and Axolotl 0.20 removes it"
        yield Hit(message, "fsdp_version", change=changes.second_fsdp(run))


@rule(
    id="fsdp2-quantized-rl",
    bad="base_model: meta-llama/Llama-3.2-1B\nrl: dpo\nadapter: qlora\nload_in_4bit: true\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nrl: dpo\nadapter: lora\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    options="--gpus 2",
)
def fsdp2_quantized_rl(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """DPO, KTO, ORPO or IPO on a quantised base under FSDP2.

    These trainers do not support FSDP2 with `load_in_4bit` or `load_in_8bit`, so Axolotl stops. Use LoRA on an
    unquantised base, DeepSpeed, or FSDP1 up to Axolotl 0.19.
    """
    if run.objective.rl not in PREFERENCE_TRAINING:
        return
    # Up to 0.19 Axolotl checks only the version, even without an fsdp_config.
    newer = schema_of(run).since("0.20.0")
    if not run.config.get("fsdp_config") if newer else run.config.get("fsdp_version") != 2:
        return
    for key in ("load_in_4bit", "load_in_8bit"):
        if run.config.get(key):
            fix = None if newer else unsafe("Shard with FSDP1: fsdp_version: 1", choose_fsdp_version(run, 1))
            yield Hit(f"Axolotl refuses {key} with rl {run.objective.rl} under FSDP2", key, fix)
