"""TRL's own rules: the longest row, LoRA, and arguments that are refused or ignored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vramwise.rules.base import Hit, insert_key, rule, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.timeline import MemoryReport
from vramwise.trainers.trl.keys import project_of
from vramwise.trainers.trl.refusals import refusals
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

max_length_default = row(
    id="max-length-default",
    topic="shapes",
    severity=Severity.INFO,
    text="""`max_length` is not set, so samples are cut to 1024 tokens.

    Chats and documents are often longer, and their end, the answer, is cut: memory looks fine, but the model learns
    from truncated samples. Set the length you want, even if it is 1024.
    """,
    bad="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\n",
    good="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\nmax_length: 1024\n",
    beyond_trainer="TRL cuts without warning.",
    when=lambda run: (
        "max_length" not in run.config and run.objective.generation_rows is None and run.objective.rl != "distillation"
    ),
    field="sequence_len",
    message=lambda run: (
        f"max_length is not set, so it is {run.shapes.sequence_len}: longer samples are cut at the end without warning"
    ),
)

max_length_unlimited = row(
    id="max-length-unlimited",
    topic="shapes",
    severity=Severity.WARNING,
    text="""`max_length: null` cuts nothing: the longest sample of the data decides the memory.

    The run fails at the step that reaches it, possibly hours in, because rows are drawn at random. Set a length that
    covers nearly all samples. With local data, `vramwise predict` shows what its lengths need; without, it says up to
    which length rows fit.
    """,
    bad="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\nmax_length: null\n",
    good="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\nmax_length: 4096\n",
    beyond_trainer="TRL does not limit rows; one long sample decides whether the run survives.",
    when=lambda run: _unlimited(run) and run.objective.generation_rows is None,
    field="sequence_len",
    message=lambda run: (
        "max_length is null: no sample is cut, so the longest one decides whether the run fits "
        f"({run.shapes.sequence_len:,} tokens are assumed without data)"
    ),
)


@rule(
    id="fp32-base",
    severity=Severity.WARNING,
    also=(Severity.INFO,),
    costs_memory=True,
    topic="precision",
    bad="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nuse_peft: true\nmax_steps: 100\n",
    good=(
        "model_name_or_path: Qwen/Qwen3-0.6B\ndtype: bfloat16\ndataset_name: trl-lib/tldr\nuse_peft: true\n"
        "max_steps: 100\n"
    ),
    beyond_trainer="The default is easy to miss: bf16 is on, but the weights are still fp32.",
)
def fp32_base(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The weights are loaded in fp32, although the run computes in bf16.

    `bf16` means autocast: products are computed in bf16, from weights of any type. TRL's `dtype` sets the type the
    weights are loaded in. Its default is float32, frozen or not: 4 bytes per parameter instead of 2. For LoRA, the
    base is most of the memory, so it doubles; values passed between layers are fp32 as well. In 4 bits the weights are
    small, but `dtype` is also their compute type: each is unpacked to fp32, then cast.

    With an adapter, set `dtype: bfloat16`. In a full fine-tune the fp32 weights serve as master weights, which is
    often intended: the finding is then only a note, and the fix changes the training.
    """
    change = changes.load_in_bf16(run)
    if change is None or run.origins["weights_dtype"].place is not None:
        return
    yield Hit(
        field="weights_dtype",
        message=_fp32_message(run),
        change=change,
        severity=None if run.adapter.kind else Severity.INFO,
    )


def _fp32_message(run: RunSpec) -> str:
    if run.loading.quantization == "4bit":
        return "dtype is not set, so it is float32: 4-bit weights are unpacked to fp32, and all others are fp32"
    if run.adapter.kind:
        return "dtype is not set, so it is float32: the frozen base takes 4 bytes per parameter, although bf16 is on"
    return "dtype is not set, so it is float32: weights of 4 bytes and fp32 gradients under bf16 autocast"


_LORA = (
    "lora_r",
    "lora_alpha",
    "lora_target_modules",
    "lora_dropout",
    "lora_modules_to_save",
    "use_dora",
    "use_rslora",
)


@rule(
    id="lora-without-peft",
    severity=Severity.WARNING,
    topic="method",
    bad="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\nlora_r: 16\n",
    good=(
        "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\nuse_peft: true\nlora_r: 16\n"
    ),
    beyond_trainer="TRL reads the lora_* keys only if use_peft is on, and gives no warning.",
)
def lora_without_peft(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """LoRA is configured, but `use_peft` is off: every weight is trained.

    `lora_r` and the other LoRA keys are read only with `use_peft: true`. Without it, the run is a full fine-tune:
    gradients and two optimizer states for every parameter, 16 bytes each with TRL's fp32 weights, and a learning rate
    that was meant for an adapter.
    """
    written = [key for key in _LORA if run.config.get(key) is not None]
    if run.adapter.kind is not None or not written:
        return
    edit = set_key("use_peft", True) if "use_peft" in run.config else insert_key("use_peft", True, beside=written[0])
    yield Hit(
        f"{written[0]} is set, but use_peft is off: no adapter is created and every weight is trained",
        written[0],
        unsafe("Train the adapter: use_peft true", edit),
    )


_KEY = "lora_target_modules"
# Signs of a regular expression that may match a module's whole name.
_EXPRESSION = (".*", "|", "(", "\\", "[")


@rule(
    id="single-lora-target",
    topic="method",
    bad=(
        "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nuse_peft: true\n"
        "lora_target_modules:\n  - q_proj\n"
    ),
    good=(
        "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nuse_peft: true\n"
        "lora_target_modules:\n  - q_proj\n  - v_proj\n"
    ),
    beyond_trainer="TRL's parser accepts the file, but PEFT stops once the model is loaded.",
)
def single_lora_target(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """One LoRA target alone is taken for a regular expression, which matches no module.

    TRL hands a list of one to PEFT as a text, so that `all-linear` works. Any other text is an expression for PEFT, to
    be matched against the whole name: `q_proj` is no name such as `model.layers.0.self_attn.q_proj`, and the run stops
    with `Target modules … not found in the base model`. Write `.*q_proj`, or name more than one.
    """
    names = run.config.get(_KEY)
    names = [names] if isinstance(names, str) else names
    if run.adapter.kind is None or not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        return
    name = names[0]
    if name == "all-linear" or any(sign in name for sign in _EXPRESSION):
        return
    yield Hit(
        f"{_KEY} names only {name}, which PEFT treats as a regular expression that matches no full module name",
        _KEY,
        unsafe(f"Write .*{name}", set_key(_KEY, f".*{name}")),
    )


@rule(
    id="ignored-option",
    severity=Severity.INFO,
    topic="config",
    bad=("model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\npacking_strategy: bfd\n"),
    good="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\n",
    beyond_trainer="TRL reads the key, but it has no effect here.",
)
def ignored_option(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An option that changes nothing here.

    The option depends on something that is off, or TRL does the same thing in another way. It is harmless, but does
    not save the memory you may expect: since TRL 1.15, `use_liger_kernel` no longer changes the loss, which TRL
    computes without logits anyway. It still changes the kernels of the layers, so it is reported only with
    `--pedantic`.
    """
    for found in _ignored(run):
        if found.key and found.key in run.config:
            yield replace(found, message=f"{found.key} has no effect: {found.message}")


def _ignored(run: RunSpec) -> Iterator[Hit]:
    """Yield the options that have no effect here, written or not, and why."""
    config, kwargs = run.config, "gradient_checkpointing_kwargs"
    if config.get("use_liger_kernel") and run.kernels.loss_kernel == "tiled":  # it still changes the layers
        why = "Liger's loss stays off because TRL has its own fused head; only the layers change"
        yield Hit(why, "use_liger_kernel", pedantic=True)
    if run.objective.kind == "tokens" and not run.shapes.sample_packing:
        yield Hit("packing is off, so no strategy is used", "packing_strategy")
    if not run.evaluation.evaluates:
        for key in ("per_device_eval_batch_size", "eval_steps"):
            yield Hit("eval_strategy is no, so nothing is evaluated", key)
        if config.get("do_eval"):
            yield Hit("do_eval alone evaluates nothing: eval_strategy decides", "do_eval")
    if not run.savings.gradient_checkpointing:
        yield Hit("gradient_checkpointing is off", kwargs)
    if config.get("use_bnb_nested_quant") and run.loading.quantization != "4bit":
        yield Hit("load_in_4bit is off, so there are no scales to pack", "use_bnb_nested_quant")
    if run.objective.generation_rows is not None and run.objective.engine == "policy":
        yield Hit("use_vllm is off, so the policy generates completions itself", "vllm_gpu_memory_utilization")
    reentrant = f"{kwargs}.use_reentrant"
    if config.get(reentrant) is False and run.adapter.kind is not None and run.sharding.kind == "zero3":
        yield Hit("LoRA under ZeRO 3 always uses reentrant checkpointing", reentrant)


_BASE = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\n"


@rule(
    id="refused-arguments",
    topic="config",
    bad=f"{_BASE}reward_funcs: think_format_reward\nnum_generations: 6\nper_device_train_batch_size: 8\n",
    good=f"{_BASE}reward_funcs: think_format_reward\nnum_generations: 4\nper_device_train_batch_size: 8\n",
)
def refused_arguments(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Arguments that TRL's configs or its launcher reject.

    TRL's own configs check these: generations without whole groups of completions, 8 and 4 bits at once,
    weights for another number of losses. Options passed on to `accelerate launch` are checked there: an unknown
    `mixed_precision` also stops the run. All of this happens before anything is loaded.
    """
    for found in refusals(run):
        yield replace(found, message=f"{found.message}: TRL rejects the file")


@rule(
    id="refused-later",
    topic="config",
    bad=(
        "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\npacking: true\n"
        "max_length: null\n"
    ),
    good=(
        "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\npacking: true\n"
        "max_length: 2048\n"
    ),
    beyond_trainer="TRL's parser accepts the file, but its trainer stops once the model is loaded.",
)
def refused_later(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Arguments that TRL's trainers reject together, after the model is loaded.

    The constructors of TRL's trainers and PEFT make these checks. The parser accepts the file, the model is downloaded
    and loaded, and then the run stops. Each finding names the two options that conflict.
    """
    for found in _refused_later(run):
        yield replace(found, message=f"{found.message}: TRL stops")


def _unlimited(run: RunSpec) -> bool:
    """Return whether max_length is null; before TRL 0.15 that means its default."""
    null = "max_length" in run.config and run.config.get("max_length") is None
    return null and run.origins["sequence_len"].kind == "assumed"


def _refused_later(run: RunSpec) -> Iterator[Hit]:
    config, adapter, kind = run.config, run.adapter, run.objective.kind
    unlimited = _unlimited(run)
    if run.base_model is None:
        yield Hit("no model is set", "model_name_or_path")
    if _no_data(run):
        yield Hit("neither dataset_name nor datasets is set: there is nothing to train on", "dataset_name")
    if run.loading.quantization is not None and adapter.kind is None and not _open(run, "use_peft"):
        yield Hit("a quantised base cannot be trained directly: set use_peft", "load_in_4bit")
    if run.shapes.sample_packing and unlimited:
        yield Hit("packing needs a max_length: rows are filled up to it", "max_length")
    if config.get("padding_free") and kind == "tokens" and not run.shapes.sample_packing and not unlimited:
        why = "padding_free without packing does not enforce max_length: TRL requires packing, or max_length null"
        yield Hit(why, "padding_free")
    if adapter.kind and kind != "reward" and "lm_head" in adapter.lora_target_modules:
        why = "an adapter on lm_head: the loss is taken from the head's own weight, past the adapter"
        yield Hit(why, "lora_target_modules")
    if config.get("use_liger_kernel") and config.get("liger_kernel_config.fused_linear_cross_entropy"):
        why = "Liger's fused_linear_cross_entropy replaces the forward pass that TRL's own fused head needs"
        yield Hit(why, "liger_kernel_config")
    if kind == "kto" and run.batch.micro_batch_size == 1 and config.get("loss_type") != "apo_zero_unpaired":
        yield Hit("KTO's KL term needs more than one row per batch", "per_device_train_batch_size")
    if adapter.half_adapters and run.precision.compute == "fp16" and run.precision.autocast:
        yield Hit(
            "fp16 with an adapter on a quantised base: TRL turns the adapter into bf16, and fp16's loss scaling does "
            "not work with bf16 gradients",
            "fp16",
        )
    if config.get("sync_ref_model") and adapter.kind is not None:
        why = "sync_ref_model needs a separate reference model, which a run with an adapter does not have"
        yield Hit(why, "sync_ref_model")


def _open(run: RunSpec, key: str) -> bool:
    script = run.config.document.script
    return script is not None and script.leaves_open(key)


def _no_data(run: RunSpec) -> bool:
    values = run.config.document.values
    return not (values.get("dataset_name") or values.get("datasets") or project_of(values))
