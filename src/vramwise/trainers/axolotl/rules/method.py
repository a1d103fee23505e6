"""Axolotl's own rules about adapters, their kernels, new tokens and what is trained."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import lists_foreign_plugin, lists_plugin
from vramwise.trainers.axolotl.resolve.adapter import PEFT_RANK
from vramwise.trainers.axolotl.resolve.lora_kernels import (
    KERNELS,
    LINEAR_KERNELS,
    attention_unknown,
    model_refused,
    version_unseen,
)
from vramwise.trainers.axolotl.schema import Schema, elsewhere, schema_of, suggest, value_history
from vramwise.types import Edit, Fix, RunSpec, Severity

_ATTENTION_KERNELS = ("lora_qkv_kernel", "lora_o_kernel")
_KERNELS = ("lora_mlp_kernel", *_ATTENTION_KERNELS)


@rule(
    id="lora-kernels-unknown-attention",
    bad="base_model: microsoft/Phi-3-mini-4k-instruct\nadapter: lora\nlora_r: 16\nlora_target_linear: true\n",
    good=(
        "base_model: microsoft/Phi-3-mini-4k-instruct\nadapter: lora\nlora_r: 16\nlora_target_linear: true\n"
        "lora_mlp_kernel: false\nlora_qkv_kernel: false\nlora_o_kernel: false\n"
    ),
    beyond_trainer="Axolotl accepts the file, turns the kernels on by default, and stops while it loads the model.",
)
def lora_kernels_unknown_attention(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Fused LoRA kernels are on for a model whose attention they do not support.

    With `adapter: lora` or `qlora` and no `lora_*_kernel` set, Axolotl turns the fused kernels on. The attention
    kernels rewrite the source text of the model's attention, and recognise only two forms of it. Phi and Phi-3, OLMo,
    Command R, GLM-4.5, StableLM, Falcon, GPT-2, GPT-NeoX, Llama 4, DeepSeek, LFM2 and Qwen2-VL use other forms (one
    matrix for q, k and v, a norm in between, another name), so Axolotl stops while it loads the model.

    Up to 0.20 the kernels also stop a reward model: they support only adapters of language models (observed with 0.19).

    Set the kernels to false: the result is the same, a little slower and with somewhat more memory for activations.
    Setting one key turns the default off for the others too. The rule applies only to known models.
    """
    if model_refused(run):
        why = "support language models, not reward models"
        yield from _stops(run, _KERNELS, why, " (Model must be a PeftModelForCausalLM)")
    elif attention_unknown(run):
        yield from _stops(run, _ATTENTION_KERNELS, f"do not support the attention of {run.model_type} models")


def _stops(run: RunSpec, kernels: tuple[str, ...], why: str, shown: str = "") -> Iterator[Hit]:
    """Report the kernels that are on: they stop the run."""
    on = [kernel for kernel in kernels if kernel.split("_")[1] in run.adapter.fused_lora]
    if not on:
        return
    written = [kernel for kernel in on if run.config.get(kernel)]
    by_itself = "" if written else ", which Axolotl turns on by default,"
    yield Hit(
        f"{' and '.join(on)}{by_itself} {why}: Axolotl stops while it loads the model{shown}",
        written[0] if written else "adapter",
        safe("Turn the kernels off", *_kernels_off(run, written)),
    )


def _kernels_off(run: RunSpec, written: list[str]) -> Iterator[Edit]:
    if written:
        yield from (set_key(kernel, False) for kernel in written)
        return
    for kernel in ("lora_o_kernel", "lora_qkv_kernel", "lora_mlp_kernel"):
        yield insert_key(kernel, False, beside="adapter")


@rule(
    id="lora-kernels-unsupported",
    bad="adapter: lora\nload_in_8bit: true\nlora_mlp_kernel: true\nlora_qkv_kernel: true\n",
    good="adapter: lora\nload_in_8bit: true\nlora_mlp_kernel: false\nlora_qkv_kernel: false\n",
)
def lora_kernels_unsupported(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Fused LoRA kernels are on in a run that they do not support.

    The `lora_*_kernel` keys fuse LoRA with the projections of attention and MLP. They cannot read 8-bit base weights,
    do not support the layers of a model's own remote code, and cannot access parameters that FSDP1 has flattened.
    Axolotl refuses the file in these cases (FSDP1 exists only up to 0.19). Up to 0.19 it looks for `fsdp_version: 2`
    only at the top level: if it is inside `fsdp_config`, the kernels are refused as under FSDP1. If the kernels are
    unset, Axolotl turns them on by default, even for some models that they do not support: see
    lora-kernels-unknown-attention.

    Set them to false, or remove them. The result is the same; the fused kernels are faster and keep fewer activations.
    """
    for kernels, why in _conflicts(run):
        on = [kernel for kernel in kernels if run.config.get(kernel)]
        if on:
            fix = safe("Turn the kernels off", *(set_key(kernel, False) for kernel in on))
            yield Hit(f"Axolotl refuses {', '.join(on)} with {why}", on[0], fix)
    yield from _version_not_seen(run)


def _conflicts(run: RunSpec) -> Iterator[tuple[tuple[str, ...], str]]:
    if run.adapter.kind == "lora" and run.config.get("load_in_8bit"):
        yield LINEAR_KERNELS, "load_in_8bit: the kernels cannot read 8-bit weights"
    if run.config.get("trust_remote_code") and not _brings_kernels(run):
        yield LINEAR_KERNELS, "trust_remote_code: the kernels do not support the model's own layers"
    if run.batch.gpus > 1 and run.sharding.kind == "fsdp1" and run.config.get("fsdp_config") is not None:
        yield KERNELS, f"FSDP1 on {run.batch.gpus} GPUs: the kernels cannot access flattened parameters"


def _brings_kernels(run: RunSpec) -> bool:
    """Since 0.21 Axolotl knows the attention of Nemotron's diffusion models, whose code is remote."""
    name = (run.base_model or "").lower()
    return schema_of(run).since("0.21.0") and "nemotron" in name and "diffusion" in name


def _version_not_seen(run: RunSpec) -> Iterator[Hit]:
    on = [kernel for kernel in KERNELS if run.config.get(kernel)]
    if not on or not version_unseen(run):
        return
    yield Hit(
        f"Axolotl refuses {', '.join(on)} with fsdp_version 2 inside fsdp_config: its check looks only at the top "
        "level and assumes FSDP1",
        on[0],
        safe("Set fsdp_version: 2 at the top level", insert_key("fsdp_version", 2, beside="fsdp_config")),
    )


_TARGETS = ("lora_target_linear", "lora_target_modules", "lora_target_parameters", "peft_trainable_token_indices")


@rule(
    id="lora-without-rank",
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nlora_target_linear: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n",
    beyond_trainer="Axolotl has no default for these keys and passes null on; PEFT fails after the model has loaded.",
)
def lora_without_rank(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """LoRA without a rank, an alpha or targets.

    `lora_r`, `lora_alpha` and the `lora_target_*` keys have no default in Axolotl. It passes a missing key to PEFT as
    null. PEFT then stops with a TypeError about NoneType (rank, alpha) or with "No `target_modules` passed", after the
    model has been downloaded, loaded and prepared.

    Set all three. Rank 16 and alpha 32 on all linear layers are common starting values; memory grows with rank ×
    targets. Nothing is needed if `lora_model_dir` loads an existing adapter: its own settings apply.
    """
    if run.adapter.kind not in ("lora", "qlora") or run.config.get("lora_model_dir"):
        return
    rank, alpha = run.config.get("lora_r"), run.config.get("lora_alpha")
    if not rank and not run.config.get("lora_rank_pattern"):
        fix = unsafe("Set lora_r: 16", insert_key("lora_r", 16, beside="adapter"))
        found = "no lora_r" if rank is None else f"lora_r {rank}"
        message = f"{_rank_message(run, found, 'a rank')}; predictions assume PEFT's default, {PEFT_RANK}"
        yield Hit(message, "lora_r", fix)
    if alpha is None and not run.config.get("lora_alpha_pattern"):
        fix = unsafe("Set lora_alpha to twice the rank", insert_key("lora_alpha", 2 * (rank or 16), beside="lora_r"))
        yield Hit(_rank_message(run, "no lora_alpha", "an alpha"), "lora_alpha", fix)
    if not any(run.config.get(key) for key in _TARGETS):
        fix = unsafe("Target every linear layer", insert_key("lora_target_linear", True, beside="lora_alpha"))
        found = "neither lora_target_linear nor lora_target_modules"
        yield Hit(_rank_message(run, found, "targets"), "lora_target_modules", fix)


def _rank_message(run: RunSpec, found: str, wanted: str) -> str:
    return (
        f"adapter: {run.adapter.kind} with {found}: Axolotl has no default for {wanted}, so PEFT fails after the model "
        "has loaded"
    )


_BACKENDS = ("scattermoe", "sonicmoe", "eager", "builtin")
_IMPLEMENTATIONS: tuple[str, ...] = ("eager", "batched_mm", "grouped_mm", "scattermoe", "sonicmoe")
_IMPLEMENTATIONS += ("deep_ep", "deep_ep_grouped_mm", "deep_ep_scattermoe", "deep_ep_sonicmoe")
_NON_EXPERT = ("none", "bf16", "fp8", "fp8_blockwise", "nf4", "nvfp4")
_PLUGIN = "plugins:\n  - axolotl.integrations.kernels.KernelsPlugin\n"


@rule(
    id="moe-kernel-conflict",
    also=(Severity.WARNING,),
    bad=f"{_PLUGIN}use_scattermoe: true\nuse_sonicmoe: true\n",
    good=f"{_PLUGIN}use_scattermoe: true\n",
)
def moe_kernel_conflict(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Contradictory or unknown settings for the experts' kernels.

    Experts run on one backend: `expert_backend` (scattermoe, sonicmoe, eager, builtin) or the older switches
    `use_scattermoe` and `use_sonicmoe`. Axolotl refuses two at once, or an unknown name. If `experts_implementation` is
    unknown, or names a kernel whose switch is off, Axolotl uses `eager` instead, the slow loop over experts.
    `nonexpert_quantization` accepts none, bf16, fp8, fp8_blockwise, nf4 or nvfp4.

    The keys belong to the kernels plugin. Without it Axolotl drops them and the rule reports nothing.
    """
    if not lists_plugin(run, "KernelsPlugin"):
        return
    yield from _backends(run)
    yield from _implementation(run)
    policy = run.config.get("nonexpert_quantization")
    if policy is not None and str(policy).lower() not in _NON_EXPERT:
        message = f"Axolotl refuses nonexpert_quantization: {policy}; supported are {', '.join(_NON_EXPERT)}"
        yield Hit(message, "nonexpert_quantization")


def _backends(run: RunSpec) -> Iterator[Hit]:
    backend = run.config.get("expert_backend")
    wanted = None if backend is None else str(backend).lower()
    if wanted is not None and wanted not in _BACKENDS:
        message = f"Axolotl refuses expert_backend: {backend}; supported are {', '.join(_BACKENDS)}"
        yield Hit(message, "expert_backend")
        return
    switches = [name for name in ("scattermoe", "sonicmoe") if run.config.get(f"use_{name}") is True]
    if wanted is not None:
        for name in switches:
            if name != wanted:
                fix = unsafe(f"Keep expert_backend {wanted}", delete_key(f"use_{name}"))
                message = f"Axolotl refuses use_{name}: true, which contradicts expert_backend: {wanted}"
                yield Hit(message, f"use_{name}", fix)
    elif len(switches) == 2:
        fix = unsafe("Keep ScatterMoE", delete_key("use_sonicmoe"))
        message = "Axolotl refuses use_scattermoe together with use_sonicmoe: experts run on one backend"
        yield Hit(message, "use_sonicmoe", fix)


def _implementation(run: RunSpec) -> Iterator[Hit]:
    name = run.config.get("experts_implementation")
    if name is None:
        return
    if name not in _IMPLEMENTATIONS:
        message = f"experts_implementation: {name} is unknown: Axolotl uses eager instead, the slow loop over experts"
        yield Hit(message, "experts_implementation", severity=Severity.WARNING)
    elif name in ("scattermoe", "sonicmoe") and not _kernel_is_on(run, name):
        message = (
            f"experts_implementation: {name} without use_{name}: true: Axolotl uses eager instead, the slow loop over "
            "experts"
        )
        fix = unsafe(f"Turn {name} on", insert_key(f"use_{name}", True, beside="experts_implementation"))
        yield Hit(message, "experts_implementation", fix, severity=Severity.WARNING)


def _kernel_is_on(run: RunSpec, name: str) -> bool:
    return bool(run.config.get(f"use_{name}")) or str(run.config.get("expert_backend")).lower() == name


_NO_ADAPTER = frozenset({"none", "full", "fft", "false", "no"})


@rule(
    id="unknown-adapter",
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: qloar\nload_in_4bit: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\n",
)
def unknown_adapter(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`adapter` names an unknown adapter: neither built in nor from a listed plugin.

    Axolotl has `lora`, `qlora` and `llama-adapter`. Others, such as `mora`, come with a plugin that must be listed
    under `plugins`. Axolotl refuses any other name. Variants of LoRA are options, not adapters: `peft_use_dora`,
    `peft_use_rslora`. For a full fine-tune remove `adapter`; YAML reads the word None as text.

    The rule reports nothing if a plugin from another package is listed, which may provide the adapter.
    """
    adapter, schema = run.adapter.kind, schema_of(run)
    if not adapter or adapter in schema.adapters() or lists_foreign_plugin(run):
        return
    plugin = schema.plugin_adapters().get(adapter)
    if plugin is not None and lists_plugin(run, plugin.rsplit(".", 1)[1]):
        return
    hint, fix = _adapter_remedy(schema, adapter, plugin)
    yield Hit(f"Axolotl has no adapter '{adapter}': {hint}", "adapter", fix)


def _adapter_remedy(schema: Schema, adapter: str, plugin: str | None) -> tuple[str, Fix | None]:
    if plugin is not None:
        return f"it comes with {plugin}, which is not listed under plugins", None
    if when := elsewhere(value_history("adapter", adapter), schema.version):
        return f"it {when}, but this is {schema.short}", None
    folded = adapter.lower()
    if folded in ("dora", "rslora"):
        option = f"peft_use_{folded}"
        edits = (set_key("adapter", "lora"), insert_key(option, True, beside="adapter"))
        return f"it is an option of lora, {option}: true", unsafe(f"Use lora with {option}", *edits)
    if folded in _NO_ADAPTER:
        return "remove the key for a full fine-tune", unsafe("Fine-tune all weights", delete_key("adapter"))
    close = suggest(adapter, schema.adapters())
    if close:
        return f"did you mean {' or '.join(close)}?", unsafe(f"Use {close[0]}", set_key("adapter", close[0]))
    return f"supported are {', '.join(sorted(schema.adapters()))}", None


fused_mlp_with_lora = row(
    id="fused-mlp-with-lora",
    text="""`flash_attn_fuse_mlp` with a LoRA adapter.

    Fusing merges the gate and up projections into one module, so the linears that LoRA should adapt no longer exist.
    Axolotl refuses the key with `lora` and `qlora`.

    Remove the key: the MLP computes the same, and LoRA has its own kernels (`lora_mlp_kernel`).
    """,
    bad="adapter: lora\nflash_attn_fuse_mlp: true\n",
    good="adapter: lora\nflash_attn_fuse_mlp: false\n",
    when=lambda run: run.adapter.kind in ("lora", "qlora") and run.config.get("flash_attn_fuse_mlp"),
    key="flash_attn_fuse_mlp",
    message=lambda run: (
        f"Axolotl refuses flash_attn_fuse_mlp with adapter: {run.adapter.kind}: fusing removes the linears that LoRA "
        "adapts"
    ),
    fix=safe("Do not fuse the MLP", delete_key("flash_attn_fuse_mlp")),
)

kto_unused_columns = row(
    id="kto-unused-columns",
    text="""KTO training without `remove_unused_columns: false`.

    The trainer drops data columns that are not arguments of the model's forward. KTO's labels and completions are such
    columns, so nothing would be left to learn from. Axolotl refuses the config unless `remove_unused_columns: false` is
    set (`skip_prepare_dataset: true` implies it).
    """,
    bad="rl: kto\nmicro_batch_size: 2\n",
    good="rl: kto\nmicro_batch_size: 2\nremove_unused_columns: false\n",
    when=lambda run: (
        run.objective.rl == "kto"
        and run.config.get("remove_unused_columns", not run.config.get("skip_prepare_dataset")) is not False
    ),
    key="remove_unused_columns",
    message="Axolotl refuses rl: kto without remove_unused_columns: false: KTO's columns would be dropped",
    fix=safe("Keep the columns", insert_key("remove_unused_columns", False, beside="rl")),
)

lora_dropout_on_parameters = row(
    id="lora-dropout-on-parameters",
    text="""LoRA dropout together with `lora_target_parameters`.

    `lora_target_parameters` puts LoRA on bare parameters, usually the 3-D weights of experts. The update is added to
    the weight itself, not to a layer's output, so dropout has no input to act on. Axolotl refuses the file.

    Set `lora_dropout: 0`. This also saves a mask and a masked copy of the input at every LoRA layer.
    """,
    bad="adapter: lora\nlora_dropout: 0.05\nlora_target_parameters:\n  - mlp.experts.gate_up_proj\n",
    good="adapter: lora\nlora_dropout: 0\nlora_target_parameters:\n  - mlp.experts.gate_up_proj\n",
    when=lambda run: run.config.get("lora_target_parameters") and run.adapter.lora_dropout,
    key="lora_dropout",
    message=lambda run: (
        f"Axolotl refuses lora_dropout {run.adapter.lora_dropout:g} with lora_target_parameters: parameters do not "
        "support dropout"
    ),
    fix=unsafe("Train without LoRA dropout", set_key("lora_dropout", 0)),
)


def _added_tokens(run: RunSpec) -> str:
    return "1 added token" if run.adapter.added_tokens == 1 else f"{run.adapter.added_tokens} added tokens"


def _saved_embeddings(run: RunSpec) -> list[str]:
    return [name for name in run.adapter.lora_modules_to_save if name in ("embed_tokens", "lm_head")]


new_tokens_train_embeddings = row(
    id="new-tokens-train-embeddings",
    severity=Severity.WARNING,
    text="""A few new tokens make LoRA train the whole embedding and head.

    New tokens need trained rows, and the usual way is to list `embed_tokens` and `lm_head` in `lora_modules_to_save`.
    Each becomes a full trainable copy beside the frozen original, with gradients and optimizer states: 8 bytes per
    parameter with Adam in bf16. For a vocabulary of 128256 and width 2048 that is 2.0 GiB for each of the two, to train
    a handful of rows.

    Use `peft_trainable_token_indices` instead and list the ids of the new tokens: it trains only their rows.
    """,
    costs_memory=True,
    bad="adapter: lora\nlora_modules_to_save:\n  - embed_tokens\n  - lm_head\ntokens:\n  - <|tool|>\n",
    good="adapter: lora\npeft_trainable_token_indices: [128256]\ntokens:\n  - <|tool|>\n",
    beyond_trainer="Axolotl asks for lora_modules_to_save when special tokens change, without mentioning its cost.",
    when=lambda run: (
        run.adapter.kind
        and run.adapter.added_tokens
        and _saved_embeddings(run)
        and not run.config.get("peft_trainable_token_indices")
    ),
    key="lora_modules_to_save",
    message=lambda run: (
        f"full copies of {' and '.join(_saved_embeddings(run))} are trained for {_added_tokens(run)}, with "
        "gradients and optimizer states; peft_trainable_token_indices trains only the new rows"
    ),
)

new_tokens_untrained = row(
    id="new-tokens-untrained",
    severity=Severity.WARNING,
    text="""New tokens are added under LoRA, but nothing trains their embeddings.

    The new rows of the embedding get random values around the mean of the old ones. LoRA then freezes the embedding, so
    the new tokens keep these values and the adapter can only learn around them.

    `peft_trainable_token_indices` with the ids of the new tokens trains just those rows and costs almost nothing.
    `lora_modules_to_save: [embed_tokens, lm_head]` trains all rows, at 8 bytes per parameter with Adam in bf16. Tokens
    that the tokenizer already knows need neither.
    """,
    bad="adapter: lora\nlora_target_linear: true\ntokens:\n  - <|tool|>\n",
    good="adapter: lora\nlora_target_linear: true\npeft_trainable_token_indices: [128256]\ntokens:\n  - <|tool|>\n",
    beyond_trainer="Axolotl checks only changed special tokens; added tokens stay frozen (verified with PEFT).",
    when=lambda run: (
        run.adapter.kind
        and run.adapter.added_tokens
        and not run.config.get("peft_trainable_token_indices")
        and not run.adapter.lora_modules_to_save
    ),
    key=lambda run: "tokens" if run.config.get("tokens") else "special_tokens.additional_special_tokens",
    message=lambda run: f"LoRA freezes the embeddings, so new rows for {_added_tokens(run)} are never trained",
)


def _train_everything(run: RunSpec) -> Fix:
    """Remove the adapter and the quantisation, since quantised weights cannot be trained without one."""
    held = [set_key(key, False) for key in ("load_in_4bit", "load_in_8bit") if run.config.get(key)]
    return unsafe("Fine-tune all weights", delete_key("adapter"), *held)


onebitllms_with_lora = row(
    id="onebitllms-with-lora",
    text="""1-bit training with a LoRA adapter.

    `use_onebitllms` replaces every linear with one that rounds its own weight to ternary values during training. An
    adapter would freeze exactly those weights, so Axolotl refuses `lora` and `qlora` with it.

    Fine-tune all weights, or train an adapter on a plain checkpoint.
    """,
    bad="adapter: lora\nuse_onebitllms: true\n",
    good="use_onebitllms: true\n",
    when=lambda run: run.config.get("use_onebitllms") and run.adapter.kind in ("lora", "qlora"),
    key="use_onebitllms",
    message=lambda run: (
        f"Axolotl refuses use_onebitllms with adapter: {run.adapter.kind}: 1-bit linears train their own weights"
    ),
    fix=_train_everything,
)


@rule(
    id="packing-with-rl",
    bad="rl: dpo\nsample_packing: true\nsequence_len: 2048\n",
    good="rl: dpo\nsample_packing: false\nsequence_len: 2048\n",
)
def packing_with_rl(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Sample packing with preference or RL training.

    RL trainers compare answers pair by pair or group by group, so a row must hold one answer and cannot be packed.
    Axolotl refuses `sample_packing` with any `rl`, and `eval_sample_packing` with `rl: kto`.

    Turn packing off. The micro-batch then counts single rows, not packed ones. With short samples a step has fewer
    tokens than before, so you may be able to raise the micro-batch.
    """
    rl = run.objective.rl
    for key in ("sample_packing", "eval_sample_packing"):
        if run.config.get(key) and (rl == "kto" or (rl and key == "sample_packing")):
            message = f"Axolotl refuses {key} with rl: {rl}: RL rows hold one answer each and cannot be packed"
            yield Hit(message, key, unsafe(f"Set {key} to false", set_key(key, False)))


@rule(
    id="unfrozen-with-layers-to-transform",
    bad="adapter: lora\npeft_layers_to_transform: [0, 1]\nunfrozen_parameters:\n  - ^lm_head.weight$\n",
    good="adapter: lora\npeft_layers_to_transform: [0, 1]\n",
)
def unfrozen_with_layers_to_transform(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The settings that choose layers for LoRA contradict each other or are incomplete.

    `unfrozen_parameters` freezes everything it does not name, including LoRA weights. `peft_layers_to_transform`
    chooses the layers that get LoRA weights to train. Together they would freeze weights that should be trained, so
    Axolotl refuses the file. It also refuses `peft_layers_pattern`, the name of the layer list, without
    `peft_layers_to_transform`.

    Use one of the two. To train whole modules beside LoRA, use `lora_modules_to_save`.
    """
    layers = run.config.get("peft_layers_to_transform")
    if run.adapter.kind and layers and run.config.get("unfrozen_parameters"):
        yield Hit(
            "Axolotl refuses unfrozen_parameters with peft_layers_to_transform: it would freeze the added LoRA weights",
            "unfrozen_parameters",
        )
    if run.config.get("peft_layers_pattern") and not layers:
        yield Hit("Axolotl refuses peft_layers_pattern without peft_layers_to_transform", "peft_layers_pattern")


@rule(
    id="relora-misused",
    bad="adapter: lora\nrelora: true\njagged_restart_steps: 100\nlr_scheduler: one_cycle\n",
    good="adapter: lora\nrelora: true\njagged_restart_steps: 100\nlr_scheduler: cosine\n",
)
def relora_misused(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """ReLoRA without a required setting, or with an unsupported one.

    ReLoRA merges the adapter into the base every `jagged_restart_steps` steps and starts a new one. Axolotl refuses it
    without that key or without a `lora`/`qlora` adapter. It also refuses it under FSDP and DeepSpeed (merging needs
    whole weights), with the `one_cycle` schedule (which cannot restart) and with fused MLP modules (which cannot be
    merged into).
    """
    config, kind = run.config, run.adapter.kind
    if not config.get("relora"):
        return
    if not config.get("jagged_restart_steps"):
        yield Hit("Axolotl refuses relora without jagged_restart_steps, which says when to merge", "relora")
    if kind not in ("lora", "qlora", "mora") and not (kind and lists_foreign_plugin(run)):
        yield Hit(f"Axolotl refuses relora with adapter {kind or 'unset'}: it needs lora or qlora", "adapter")
    for key in ("fsdp", "fsdp_config", "deepspeed"):
        if config.get(key):
            yield Hit(f"Axolotl refuses relora with {key}: merging needs whole weights", key)
    if config.get("lr_scheduler") == "one_cycle":
        fix = unsafe("Use the cosine schedule", set_key("lr_scheduler", "cosine"))
        yield Hit("Axolotl refuses relora with lr_scheduler: one_cycle, which cannot restart", "lr_scheduler", fix)
    if config.get("flash_attn_fuse_mlp"):
        message = "Axolotl refuses relora with flash_attn_fuse_mlp: LoRA cannot be merged into fused modules"
        fix = unsafe("Do not fuse the MLP", delete_key("flash_attn_fuse_mlp"))
        yield Hit(message, "flash_attn_fuse_mlp", fix)
