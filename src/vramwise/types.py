"""The nouns of vramwise: what flows from a config file to a verdict.

Reading order: Place → Document → Config → Stack → Target → RunSpec → Change → Finding/Fix; then timeline.py.
Everything here is data. Nothing here reads files, knows a trainer or does arithmetic beyond its own fields.
Bytes are `int` and end in `_bytes`; MiB and GiB are 1024-based.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any, Literal

# A path to a value in a config: mapping keys are str, list positions int. ("datasets", 0, "path")
KeyPath = tuple[str | int, ...]


class Severity(Enum):
    """How bad a finding is. ERROR: refused by the trainer, or certain to fail or to do something else than written."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for info, 1 for warning, 2 for error."""
        return ("info", "warning", "error").index(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A span of a text. Lines and columns count from 1, columns in characters; the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


START = Place(line=1, column=1, end_line=1, end_column=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Where one key and its value stand in the text: character offsets, end exclusive. List items have no key."""

    key_start: int
    key_end: int
    value_start: int
    value_end: int
    # True where the value is written elsewhere: an alias (`*x`) or merged in by `<<`. What others share stays.
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateKey:
    """A key that stands twice in one mapping: the last one counts."""

    key: str
    first: Place
    last: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A config's text (BOM and line endings as they were), its values, and the span of every key."""

    path: str
    text: str
    values: dict[str, Any]
    spans: Mapping[KeyPath, Span]
    duplicates: tuple[DuplicateKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a resolved value came from, and why it is what it is."""

    kind: Literal["file", "default", "derived", "option", "environment", "assumed"]
    why: str
    key: str | None = None
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSpec:
    """A card: what decides memory and dtypes. `capability` is CUDA's (major, minor); None where there is none (AMD)."""

    name: str
    vendor: Literal["nvidia", "amd"]
    memory_bytes: int
    capability: tuple[int, int] | None
    bf16: bool
    fp8: bool
    known: bool = True  # False for a bare size such as "24GB": capability-dependent rules are skipped
    multiprocessors: int | None = None  # AMD: compute units; None where they are not known
    taken_for: str = ""  # what a name that fits several cards was taken for, as a sentence; "" where it fits one


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """The dimensions of a model, under the names of transformers' config.json; what a family implies is spelled out.

    `family` names the block the ghost run builds; `family_assumed` is True where the config's model_type is not known
    and its llama-like fields were taken at face value.
    """

    name: str
    source: str  # where the facts came from: a path, "catalogue", "hub cache"…
    model_type: str
    family: str
    family_assumed: bool = False
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    max_position_embeddings: int
    # block details
    qkv_bias: bool = False
    attention_out_bias: bool = False
    mlp_bias: bool = False
    lm_head_bias: bool = False
    fused_qkv: bool = False
    fused_gate_up: bool = False
    gated_mlp: bool = True
    activation: str = "silu"
    norm: Literal["rms", "layer", "layer_no_affine"] = "rms"
    norms_per_block: int = 2
    qk_norm: Literal["none", "head", "full"] = "none"
    parallel_residual: bool = False
    rotary_fraction: float = 1.0
    sliding_window: int | None = None
    layer_types: tuple[str, ...] = ()
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    attention_dropout: float = 0.0
    # mixture of experts; num_experts 0 = dense
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    shared_expert_intermediate_size: int = 0
    dense_layers: tuple[int, ...] = ()  # layers of an MoE model that have an ordinary MLP
    # what else changes the tensors of a block
    hidden_dropout: float = 0.0  # on the outputs of attention and MLP
    embedding_dropout: float = 0.0
    nope_layers: tuple[int, ...] = ()  # layers whose attention applies no rotary embedding
    # how the checkpoint is stored: the quant_method of its config (gptq, mxfp4, bitsandbytes_4bit…), None = plain
    checkpoint_quantization: str | None = None
    # sizes that only this family's blocks have, by their names in config.json: heads of a delta rule, ranks of latents
    sizes: tuple[tuple[str, int], ...] = ()
    # a multimodal model: the name its text model has inside it ("" = it is the text model; a dot first: the whole text
    # model stands under that name), (name, shape, kind) of the parameters before the text model (vision tower,
    # projector), and what is known to be missing there ("" = nothing)
    text_part: str = ""
    tower: tuple[tuple[str, tuple[int, ...], str], ...] = ()
    after_text: tuple[tuple[str, tuple[int, ...], str], ...] = ()  # the same, of those that come after the text model
    left_out: str = ""
    # the known model whose shape was taken because the name says so, and the words that say it ("" = the model itself)
    taken_for: str = ""

    def size(self, name: str) -> int:
        """One of `sizes`; 0 where it is not set."""
        return dict(self.sizes).get(name, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One package's version, as text, and how it is known."""

    version: str
    origin: Origin

    @property
    def parts(self) -> tuple[int, ...]:
        """The leading numbers: (2, 11, 0) of `2.11.0+cu130`."""
        numbers: list[int] = []
        for part in self.version.split("+")[0].split("."):
            digits = part[: len(part) - len(part.lstrip("0123456789"))]
            if not digits:
                break
            numbers.append(int(digits))
            if digits != part:
                break
        return tuple(numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The versions that run: trainer, torch, transformers, peft… by package name, each with its origin."""

    releases: Mapping[str, Release]

    def parts(self, package: str) -> tuple[int, ...]:
        """A package's version as numbers; empty where it is not known."""
        release = self.releases.get(package)
        return () if release is None else release.parts

    @property
    def torch(self) -> tuple[int, int]:
        """torch's major and minor version, which decide what its allocator does."""
        parts = self.parts("torch")
        return (parts[0], parts[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The machine the run is meant for: card, how many, what is installed, allocator variables, how it is launched."""

    gpu: GpuSpec | None
    gpus: int
    stack: Stack
    # The PYTORCH_*ALLOC_CONF variables that the training process inherits (absent = unset; "" = set and empty).
    alloc_env: Mapping[str, str]
    # Settings forced by --alloc-conf: effective whatever trainer and environment say. None = not forced.
    alloc_conf: str | None = None
    launcher: Literal["cli", "module"] = "cli"

    @property
    def torch(self) -> tuple[int, int]:
        """torch's version."""
        return self.stack.torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long a config trains: passes over the data, unless steps are counted. `held_out`: a share or a number."""

    epochs: float = 1.0
    max_steps: int | None = None
    held_out: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroSettings:
    """DeepSpeed's own settings, as far as memory depends on them. Sizes are in elements; None: by the model's width."""

    optimizer: str | None = None  # one that DeepSpeed makes itself, in place of the trainer's
    reduce_bucket: int | None = 500_000_000  # gradients are exchanged so many at a time
    overlaps: bool = False  # exchanges run beside backward, which takes a second bucket
    contiguous: bool = True  # gradients are copied into the bucket
    prefetch: int | None = 50_000_000  # ZeRO 3 gathers so many ahead
    keeps_under: int | None = 100_000  # ZeRO 3 leaves smaller weights gathered
    most_live: int = 1_000_000_000  # ZeRO 3 gathers nothing ahead beyond so many
    reuse_distance: int = 1_000_000_000  # ZeRO 3 keeps weights that are used again within so many
    sub_group: int = 1_000_000_000  # ZeRO 3 steps so many at a time
    wide_sums: bool = False  # gradients accumulate in fp32
    release: tuple[int, ...] = ()  # of DeepSpeed; empty: the newest that is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfollowed:
    """What no prediction follows. `less`: the run as it is predicted takes at least what the real one does."""

    name: str
    less: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedBlocks:
    """Some blocks of a model that is otherwise frozen: the last so many (below 0: the first), or spread over it.

    `modules`: names of modules inside them; () = all. `others`: names of modules outside of blocks.
    """

    count: int
    spread: bool = False
    modules: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def numbers(self, layers: int) -> range:
        """Which of so many blocks."""
        if self.spread:
            stride = max(1, layers // max(1, self.count))
            return range(stride - 1, layers, stride)
        return range(max(0, layers - self.count), layers) if self.count > 0 else range(min(-self.count, layers))


# Where transformers zeroes rows that are routed to no expert of this rank: nowhere, before the first product and after
# the last, or after each product too.
ExpertMasks = Literal["none", "ends", "products"]

# Fields of a RunSpec that are no settings of the run: where it came from and what it is resolved for.
NOT_SETTINGS = frozenset(
    {
        *("trainer", "trainer_title", "config", "target", "origins", "keys", "duplicate_keys", "added_variables"),
        "model_type",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """The run as it will really happen: trainer-neutral, fully resolved; None means "there is none", never "a default".

    `origins` says for each field where its value came from. `config` is what was written (rules about the file
    itself use it); `target` is the machine.
    """

    trainer: str
    trainer_title: str = ""
    config: Config
    target: Target
    origins: Mapping[str, Origin] = field(default_factory=dict)
    # Field → the trainer's own key for it, written or not.
    keys: Mapping[str, str] = field(default_factory=dict)
    model_type: str | None = None  # transformers' word for the base model's architecture; None where it is not known
    # Keys that stand twice in the file.
    duplicate_keys: tuple[DuplicateKey, ...] = ()

    # model
    base_model: str | None
    # batch
    gpus: int
    data_parallel: int
    micro_batch_size: int
    gradient_accumulation_steps: int
    effective_batch_size: int
    # shapes
    sequence_len: int
    sample_packing: bool
    packing_rows: Literal["none", "one", "micro"]  # "one": one row of micro × sequence_len tokens (varlen attention)
    # how samples are laid into packed rows; "full": so that every row is, whatever the samples; "single": one in each,
    # and the rows of a batch are joined
    packing_fill: Literal["full", "best_fit", "best_fit_split", "stream", "knapsack", "single"] = "full"
    packed_together: int = 1000  # samples that packing looks at together
    # of packed rows: made from their positions, in the batch as the collator made it, or none: they pass as full rows
    packed_mask: Literal["built", "batch", "none"] = "built"
    pad_to_sequence_len: bool
    pad_multiple: int  # batch widths are rounded up to a multiple of this; 1 = not rounded
    constant_shapes: bool
    can_pad: bool = True  # False: batches are made so that padding has no say (images, flattened batches)
    samples_apart: bool = True  # packed samples do not attend to one another
    group_by_length: bool
    shuffle_seed: int | None = None  # rows are drawn in the order of this seed; None: as they come, or by other rules
    long_rows: Literal["drop", "cut"] = "cut"  # what happens to samples above sequence_len
    # which tokens of a sample are trained on; "completions": those after the prompt where the data has prompts apart
    labels_on: Literal["all", "completions", "answers", "last_answer"] = "all"
    # eval
    evaluates: bool
    eval_batch_size: int | None  # None: no eval happens
    eval_sequence_len: int | None
    eval_sample_packing: bool
    eval_scheduled: bool = True  # at some step, beyond holding samples out for it
    eval_on_start: bool
    eval_steps: float | None
    eval_empties_every: int | None = None  # evaluation empties the cache after so many batches; None: never
    # dtypes
    precision: Literal["bf16", "fp16", "fp32", "fp8"]
    weights_dtype: Literal["bf16", "fp16", "fp32"]
    refuses_fp8_below: tuple[int, int] | None = (9, 0)  # cards that the trainer refuses for fp8; None: it asks nobody
    precision_by_card: bool = False  # the card decides: bf16 where it has it, else fp16
    autocast: bool  # False: pure bfloat16/float16 without AMP; under ZeRO the engine casts the model instead
    fp32_embeddings: bool  # norms, embeddings and head stay in fp32
    # loading
    # "device": read from the files onto the card; "host": made ready in host memory, then moved; "made": built there
    loads_through: Literal["device", "host", "made"] = "made"
    upcasts_at_load: tuple[str, ...] = ()  # kinds of weights that the trainer takes to fp32 when they are loaded
    upcasts_stay: bool = False  # they are not cast back
    trains_in_fp32: bool = False  # what is trained is cast to fp32 after loading, whatever type it came in
    quantised_base_prepared: Literal["no", "all", "but embeddings"] = "all"  # by PEFT: to fp32 what is not quantised
    resets_load_peaks: bool = False  # torch's peak figures begin anew when the model is loaded
    # method
    adapter: str | None
    lora_r: int | None
    lora_alpha: float | None
    lora_dropout: float
    lora_target_linear: bool
    lora_target_modules: tuple[str, ...]
    linear_targets_by_name: bool = False  # lora_target_linear means the linear modules' names, not PEFT's "all-linear"
    lora_modules_to_save: tuple[str, ...]
    use_dora: bool
    use_rslora: bool
    lora_kernels: bool
    fused_lora: tuple[str, ...] = ()  # which layers' LoRA runs in kernels of the trainer's own: mlp, qkv, o, embedding
    fused_lora_wide_grads: bool = False  # those kernels make the gradients of fp32 adapters in fp32
    embeddings_want_grads: bool = False  # of their output, even where no block is checkpointed
    quantization: Literal["4bit", "8bit", "gptq"] | None
    nested_scales: bool = True  # a 4-bit base's scales are packed to 8 bits in their turn
    half_adapters: bool = False  # what is trained on a quantised base is cast to bf16 once it is there
    # 8-bit products set outliers apart: as many as weights at their initial scale give; False: none
    int8_outliers: bool = False
    expert_quantization: Literal["4bit", "8bit"] | None = None  # of experts' 3-D weights, which `quantization` leaves
    expert_masks: ExpertMasks = "products"
    # regular expressions: a parameter whose name none of them matches is frozen; () = nothing more than the method does
    unfrozen: tuple[str, ...] = ()
    trained_blocks: TrainedBlocks | None = None  # only these blocks are trained, and only they are checkpointed
    added_tokens: int = 0  # new in the vocabulary: their rows need training
    rl: str | None
    # preference and reward training: what the loss is made of, and what the policy is held against
    # "value": rewards by a head of one number beside that of the vocabulary
    objective: Literal["tokens", "dpo", "kto", "orpo", "cpo", "reward", "value", "process_reward", "grpo"] = "tokens"
    reference: Literal["none", "model", "adapter_off", "adapter_copy"] = "none"
    reference_dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    reference_precomputed: bool = False  # its log-probabilities are worked out before the first step
    spare_model: bool = False  # a second model is loaded for the trainer, which does not take it
    # how logits become log-probabilities; "whole": through the log-softmax of them all
    log_probs: Literal["copied", "fused", "chunked", "tiled", "whole"] = "fused"
    chosen_cross_entropy: bool = False  # the chosen rows of pairs are learnt by heart besides
    empties_cache_each_step: bool = False
    # generation: rows made at once and how long completions get; None where nothing is generated
    generation_rows: int | None = None
    completion_len: int | None = None
    rows_per_prompt: int = 1
    old_log_probs: bool = False  # a pass for the policy's own log-probabilities before the update
    engine: Literal["policy", "beside", "elsewhere"] = "policy"  # who generates: an engine beside it shares its card
    engine_share: float = 0.0  # of the card
    engine_sleeps: bool = False  # the engine gives its memory back while the policy is trained
    # optimizer
    optimizer: str
    max_grad_norm: float
    # memory savers
    gradient_checkpointing: bool  # asked for
    recompute: bool  # really done
    checkpointing_reentrant: bool
    activation_offloading: Literal["off", "stream", "legacy", "hidden_states"]
    layer_offloading: bool
    attn_implementation: str
    rotary_by_product: bool = True  # rotary angles come from a matrix product, the first of a run
    # "tiled": the head in tiles, from hidden states; neither training nor an evaluation ever holds logits
    loss_kernel: Literal[
        "stock", "liger_fused_linear", "liger", "cut", "chunked", "tiled", "dft", "eaft", "dft_whole", "eaft_whole"
    ]
    loss_chunks: int = 8  # slices of the logits that the chunked loss takes one at a time
    liger: tuple[str, ...]  # liger kernels in use besides the loss: rope, rms_norm, glu_activation…
    liger_before_build: bool = False  # Liger replaces classes before the model is built: no module keeps its own
    tiled_mlp: bool
    varlen_sdpa: bool = False  # packed rows under sdpa go to torch's variable-length kernel, where the model allows it
    tiled_mlp_pieces: int | None = None  # None: one for every 32,768 tokens
    torch_compile: bool
    # sharding
    sharding: Literal["none", "ddp", "fsdp1", "fsdp2", "zero1", "zero2", "zero3"]
    offload_params: bool
    offload_optimizer: bool
    shard_ranks: int | None = None  # so many data-parallel ranks spread FSDP's weights among them; None: all
    reshard_after_forward: bool = True  # FSDP: gathered weights go after forward
    sync_each_batch: bool = False  # gradients are exchanged at every micro-step, not only at the last
    gathers_checkpoints: bool = False  # each checkpoint collects all shards in one rank's host memory
    zero: ZeroSettings | None = None  # only under DeepSpeed's ZeRO
    fsdp_one_root: bool = False  # FSDP 2: shards keep their dtype, and all outside of blocks is one unit
    fsdp_adapters_apart: bool = False  # FSDP 2: each adapter matrix is a unit, not a part of its block's
    tensor_parallel_size: int
    context_parallel_size: int
    # cache handed back while training: every so many steps, before their backward; and around evaluations, and every
    # so many steps after them (-1: around evaluations alone). None: never
    empty_cache_steps: int | None = None
    collect_steps: int | None = None
    # allocator: the settings string the CUDA allocator really gets; "" = torch's defaults
    allocator: str
    added_variables: Mapping[str, str] = field(default_factory=dict)  # allocator variables that the trainer itself sets
    unfollowed: tuple[Unfollowed, ...] = ()  # what the trainer does besides, and no prediction follows

    @property
    def output_dir(self) -> str | None:
        """The folder that the file names for what the run writes: a key that all trainers spell alike."""
        written = self.config.get("output_dir")
        return written if isinstance(written, str) and written.strip() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that may be altered about a run, in RunSpec's words, and what that does to the training.

    `effect`: "same", training gives the same result (same effective batch, same data, same numerics); "rounding", the
    same mathematics in other kernels; "changes", another training. `why` says so for a person. `fields` holds RunSpec
    fields with their new values, or words of `variants.changes` for settings that no field stands for.
    """

    id: str
    title: str
    effect: Literal["same", "rounding", "changes"]
    why: str
    fields: Mapping[str, Any]

    @property
    def safe(self) -> bool:
        """Whether training gives the same result."""
        return self.effect == "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of a config value. `beside`: where to insert a key that is not there yet (after that key)."""

    op: Literal["set", "insert", "delete"]
    key: str
    value: Any = None
    beside: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A remedy. Safe = the training result stays the same: same effective batch, same numerics, same data."""

    title: str
    safe: bool
    edits: tuple[Edit, ...]
    # The change that the edits spell, where one stands behind them: what it does to the training, and why.
    change: Change | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule found, where, and how to mend it."""

    rule: str
    severity: Severity
    message: str
    key: str | None
    place: Place
    fix: Fix | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A rule that could not judge, and what it would have needed."""

    rule: str
    needs: str


class Config:
    """What was written in the file, by dotted key: `config.get("fsdp_config.offload_params")`, `config.place("bf16")`.

    `values` is the file after the trainer's own coercions and renaming of old spellings (prefixes); `sources` says
    under which key of the file a renamed value stands, so that places and edits point at what the user wrote.
    """

    __slots__ = ("_sources", "document", "values")

    def __init__(self, document: Document, values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
        self.document = document
        self.values = values
        self._sources = sources

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a dotted key, or the default where it is absent or null."""
        found: Any = self.values
        for part in split_key(key):
            try:
                found = found[part]
            except (KeyError, IndexError, TypeError):
                return default
        return default if found is None else found

    def __contains__(self, key: str) -> bool:
        """Whether the key is written, null included."""
        return self.path(key) in self.document.spans

    def path(self, key: str) -> KeyPath:
        """The path in the file of a dotted key: under the spelling that the file uses."""
        return split_key(self._sources.get(key, key))

    def place(self, key: str) -> Place | None:
        """Where the key stands, or None."""
        span = self.document.spans.get(self.path(key))
        return None if span is None else place_of(self.document.text, span.key_start, span.value_end)


def place_of(text: str, start: int, end: int) -> Place:
    """Line and column of a span of the text."""
    line, column = _line_and_column(text, start)
    end_line, end_column = _line_and_column(text, end)
    return Place(line=line, column=column, end_line=end_line, end_column=end_column)


def _line_and_column(text: str, offset: int) -> tuple[int, int]:
    head = text[:offset].replace("\r\n", "\n").replace("\r", "\n")
    bom = 1 if head.startswith("\ufeff") and "\n" not in head else 0
    return head.count("\n") + 1, len(head) - (head.rfind("\n") + 1) + 1 - bom


@lru_cache(maxsize=4096)
def split_key(key: str) -> KeyPath:
    r"""Split a dotted key. Digits are list positions; `\.` is a dot inside a key: `options.triton\.cudagraphs`."""
    parts = key.replace("\\.", "\0").split(".")
    return tuple(int(part) if _is_position(part) else part.replace("\0", ".") for part in parts)


def _is_position(part: str) -> bool:
    # No list is longer than that, and Python refuses to read integers of thousands of digits.
    return part.isascii() and part.isdigit() and len(part) < 10


def join_key(path: KeyPath) -> str:
    """The inverse of `split_key`."""
    return ".".join(str(part).replace(".", "\\.") for part in path)
