"""TRL's own rules: the longest row, LoRA, and arguments that are refused or ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
    when=lambda run: (
        "max_length" in run.config and run.config.get("max_length") is None and run.objective.generation_rows is None
    ),
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
        key=written[0],
        message=f"{written[0]} is set, but use_peft is off: no adapter is created and every weight is trained",
        fix=unsafe("Train the adapter: use_peft true", edit),
    )


_KEY = "lora_target_modules"
# Signs of a regular expression that may match a module's whole name.
_EXPRESSION = (".*", "|", "(", "\\", "[")


@rule(
    id="single-lora-target",
    severity=Severity.ERROR,
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
        key=_KEY,
        message=f"{_KEY} names only {name}, which PEFT treats as a regular expression that matches no full module name",
        fix=unsafe(f"Write .*{name}", set_key(_KEY, f".*{name}")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ignored:
    """A key that is read but has no effect, and what it would need."""

    key: str
    why: str
    holds: Callable[[RunSpec], object]
    harmless: bool = False  # it has another useful effect


_IGNORED = (
    _Ignored(
        key="use_liger_kernel",
        why="Liger's loss stays off because TRL has its own fused head; only the layers change",
        holds=lambda run: run.config.get("use_liger_kernel") and run.kernels.loss_kernel == "tiled",
        harmless=True,
    ),
    _Ignored(
        key="packing_strategy",
        why="packing is off, so no strategy is used",
        holds=lambda run: run.objective.kind == "tokens" and not run.shapes.sample_packing,
    ),
    _Ignored(
        key="per_device_eval_batch_size",
        why="eval_strategy is no, so nothing is evaluated",
        holds=lambda run: not run.evaluation.evaluates,
    ),
    _Ignored(
        key="eval_steps",
        why="eval_strategy is no, so nothing is evaluated",
        holds=lambda run: not run.evaluation.evaluates,
    ),
    _Ignored(
        key="do_eval",
        why="do_eval alone evaluates nothing: eval_strategy decides",
        holds=lambda run: run.config.get("do_eval") and not run.evaluation.evaluates,
    ),
    _Ignored(
        key="gradient_checkpointing_kwargs",
        why="gradient_checkpointing is off",
        holds=lambda run: not run.savings.gradient_checkpointing,
    ),
    _Ignored(
        key="use_bnb_nested_quant",
        why="load_in_4bit is off, so there are no scales to pack",
        holds=lambda run: run.config.get("use_bnb_nested_quant") and run.loading.quantization != "4bit",
    ),
    _Ignored(
        key="vllm_gpu_memory_utilization",
        why="use_vllm is off, so the policy generates completions itself",
        holds=lambda run: run.objective.generation_rows is not None and run.objective.engine == "policy",
    ),
    _Ignored(
        key="gradient_checkpointing_kwargs.use_reentrant",
        why="LoRA under ZeRO 3 always uses reentrant checkpointing",
        holds=lambda run: (
            run.config.get("gradient_checkpointing_kwargs.use_reentrant") is False
            and run.adapter.kind is not None
            and run.sharding.kind == "zero3"
        ),
    ),
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
    for ignored in _IGNORED:
        if ignored.key in run.config and ignored.holds(run):
            message = f"{ignored.key} has no effect: {ignored.why}"
            yield Hit(key=ignored.key, message=message, pedantic=ignored.harmless)


_BASE = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\n"


@rule(
    id="refused-arguments",
    severity=Severity.ERROR,
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
    for key, why in refusals(run):
        yield Hit(key=key, message=f"{why}: TRL rejects the file")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """A setting that TRL's trainers or PEFT refuse after the model is loaded: the key to show, and why."""

    key: str
    why: str
    holds: Callable[[RunSpec], object]


def _packs(run: RunSpec) -> bool:
    return run.shapes.sample_packing


def _scales(run: RunSpec) -> bool:
    """Return whether gradients are scaled: fp16 under autocast."""
    return run.precision.compute == "fp16" and run.precision.autocast


def _open(run: RunSpec, key: str) -> bool:
    script = run.config.document.script
    return script is not None and script.leaves_open(key)


def _no_data(run: RunSpec) -> bool:
    values = run.config.document.values
    return not (values.get("dataset_name") or values.get("datasets") or project_of(values))


_REFUSALS = (
    _Refusal(key="model_name_or_path", why="no model is set", holds=lambda run: run.base_model is None),
    _Refusal(
        key="dataset_name", why="neither dataset_name nor datasets is set: there is nothing to train on", holds=_no_data
    ),
    _Refusal(
        key="load_in_4bit",
        why="a quantised base cannot be trained directly: set use_peft",
        holds=lambda run: (
            run.loading.quantization is not None and run.adapter.kind is None and not _open(run, "use_peft")
        ),
    ),
    _Refusal(
        key="max_length",
        why="packing needs a max_length: rows are filled up to it",
        holds=lambda run: _packs(run) and "max_length" in run.config and run.config.get("max_length") is None,
    ),
    _Refusal(
        key="padding_free",
        why="padding_free without packing does not enforce max_length: TRL requires packing, or max_length null",
        holds=lambda run: (
            run.config.get("padding_free")
            and run.objective.kind == "tokens"
            and not _packs(run)
            and not ("max_length" in run.config and run.config.get("max_length") is None)
        ),
    ),
    _Refusal(
        key="lora_target_modules",
        why="an adapter on lm_head: the loss is taken from the head's own weight, past the adapter",
        holds=lambda run: (
            run.adapter.kind and run.objective.kind != "reward" and "lm_head" in run.adapter.lora_target_modules
        ),
    ),
    _Refusal(
        key="liger_kernel_config",
        why="Liger's fused_linear_cross_entropy replaces the forward pass that TRL's own fused head needs",
        holds=lambda run: (
            run.config.get("use_liger_kernel") and run.config.get("liger_kernel_config.fused_linear_cross_entropy")
        ),
    ),
    _Refusal(
        key="per_device_train_batch_size",
        why="KTO's KL term needs more than one row per batch",
        holds=lambda run: (
            run.objective.kind == "kto"
            and run.batch.micro_batch_size == 1
            and run.config.get("loss_type") != "apo_zero_unpaired"
        ),
    ),
    _Refusal(
        key="fp16",
        why=(
            "fp16 with an adapter on a quantised base: TRL turns the adapter into bf16, and fp16's loss scaling does "
            "not work with bf16 gradients"
        ),
        holds=lambda run: run.adapter.half_adapters and _scales(run),
    ),
    _Refusal(
        key="sync_ref_model",
        why="sync_ref_model needs a separate reference model, which a run with an adapter does not have",
        holds=lambda run: run.config.get("sync_ref_model") and run.adapter.kind is not None,
    ),
)


@rule(
    id="refused-later",
    severity=Severity.ERROR,
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
    for refusal in _REFUSALS:
        if refusal.holds(run):
            yield Hit(key=refusal.key, message=f"{refusal.why}: TRL stops")
