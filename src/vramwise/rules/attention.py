"""Rules for every trainer about attention: what the card and torch can run, and what packing does with it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramwise.facts.attention import base_name, flash_stops, uses_flash_library
from vramwise.rules.base import Hit, as_written, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.units import mib
from vramwise.variants import changes

_OLDEST_TORCH = {"flex_attention": (2, 6), "fp8": (2, 11)}


@rule(
    id="attention-torch-too-old",
    bad="base_model: meta-llama/Llama-3.2-1B\nattn_implementation: fp8\n",
    good="base_model: meta-llama/Llama-3.2-1B\nattn_implementation: fp8\n",
    options="--torch 2.9",
    good_options="--torch 2.11",
)
def attention_torch_too_old(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The attention backend needs a newer torch than the target has.

    Flex attention needs torch 2.6, fp8 attention torch 2.11. On anything older, the trainer rejects the file or, in
    versions without the check, the run fails where attention is first computed. Upgrade torch, or use a backend that
    this torch supports.
    """
    name = run.kernels.attn_implementation
    oldest = _OLDEST_TORCH.get(name)
    if oldest is None or run.target.torch >= oldest:
        return
    need, have = (".".join(map(str, version)) for version in (oldest, run.target.torch))
    yield Hit(
        field="attn_implementation",
        message=(
            f"attention {name} needs torch {need}, but the target has {have}: the run stops when attention is first "
            "computed, if not earlier"
        ),
        change=changes.plain_attention(run),
    )


_SAGE = ((8, 0), (8, 6), (8, 9), (9, 0), (12, 0))
# Lowest compute capability by backend, as in transformers 5 (modeling_flash_attention_utils.py).
_OLDEST_CARD = {
    "flash_attention_2": (8, 0),
    "kernels-community/flash-attn2": (8, 0),
    "flash_attention_3": (8, 0),
    "kernels-community/flash-attn3": (8, 0),
    "kernels-community/vllm-flash-attn3": (8, 0),
    "flash_attention_4": (9, 0),
}


@rule(
    id="attention-unsupported-card",
    explains={"flash-card"},
    needs={"gpu"},
    bad="base_model: meta-llama/Llama-3.2-1B\nattn_implementation: flash_attention_2\n",
    good="base_model: meta-llama/Llama-3.2-1B\nattn_implementation: sdpa\n",
    options="--gpu t4",
    beyond_trainer=(
        "The trainer checks the card only for sage and fp8; FlashAttention fails on older cards at run time."
    ),
)
def attention_unsupported_card(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The attention backend does not run on this card.

    SageAttention runs on sm_80, 86, 89, 90 and 120, fp8 attention on sm_90 and newer; the trainer stops on other
    cards. FlashAttention 2 and 3 need Ampere (sm_80), FlashAttention 4 needs Hopper (sm_90). The trainer does not
    check this, and the stock builds fail on a T4 or V100 with "FlashAttention only supports Ampere GPUs or newer".
    `sdpa` runs on every card, without holding the scores where a memory-efficient kernel applies.
    """
    gpu, name = run.target.gpu, base_name(run.kernels.attn_implementation)
    if gpu is None or gpu.capability is None:
        return
    card = f"{gpu.name} is sm_{gpu.capability[0]}{gpu.capability[1]}"
    if name == "sage" and gpu.capability not in _SAGE:
        message = f"attention sage runs only on sm_80, 86, 89, 90 and 120, {card}: {run.trainer_title} stops"
        yield _too_old_card(run, message)
    if name == "fp8" and gpu.capability < (9, 0):
        yield _too_old_card(run, f"attention fp8 needs sm_90 or newer, {card}: {run.trainer_title} stops")
    oldest = _OLDEST_CARD.get(name)
    if oldest is not None and gpu.capability < oldest:
        message = (
            f"{name} needs sm_{oldest[0]}{oldest[1]} or newer, {card}: stock builds fail in the first forward pass"
        )
        yield _too_old_card(run, message)


def _too_old_card(run: RunSpec, message: str) -> Hit:
    return Hit(field="attn_implementation", message=message, change=changes.plain_attention(run))


_LONG = 2048
# Models with soft-capped scores (Gemma 2) and those without an sdpa path in transformers 5.
_NEEDS_EAGER = re.compile(r"gemma[-_]?2(?![b\d])|gpt[-_]?oss|deepseek[-_]?v4", re.IGNORECASE)


@rule(
    id="eager-attention-quadratic",
    explains={"eager-attention"},
    severity=Severity.WARNING,
    costs_memory=True,
    bad="base_model: meta-llama/Llama-3.2-1B\nsequence_len: 4096\nmicro_batch_size: 2\nattn_implementation: eager\n",
    good="base_model: meta-llama/Llama-3.2-1B\nsequence_len: 4096\nmicro_batch_size: 2\nattn_implementation: sdpa\n",
    beyond_trainer="The trainer accepts eager attention at any length.",
)
def eager_attention_quadratic(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Eager attention stores all scores, which grow with the square of the length.

    `eager` computes the scores of every query with every key as a tensor of batch × heads × length × length, and its
    softmax runs in fp32: 4 bytes a score, plus the copy in the compute dtype that is kept for backward. `sdpa` and
    FlashAttention never hold them. Not reported below a length of 2048, or for models that need eager: Gemma 2 caps its
    scores, gpt-oss and DeepSeek V4 have no sdpa path.
    """
    length, micro = run.shapes.sequence_len, run.batch.micro_batch_size
    if run.kernels.attn_implementation != "eager" or length < _LONG or _NEEDS_EAGER.search(run.base_model or ""):
        return
    size = micro * length * length * 4
    yield Hit(
        field="attn_implementation",
        message=(
            f"eager attention holds {micro} × {length}² × 4 bytes = {mib(size)} of fp32 scores for every head of a "
            "layer; sdpa holds none"
        ),
        change=changes.fused_attention(run),
    )


_BASE = "base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nattn_implementation: "


@rule(
    id="flash-attention-broken",
    also=(Severity.WARNING,),
    bad=f"{_BASE}flash_attention_2\n",
    good=f"{_BASE}sdpa\n",
    options="--with transformers==5.6.0",
    beyond_trainer="The trainer passes the name on, and transformers stops in the first layer.",
)
def flash_attention_broken(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Flash attention stops in this release of transformers.

    transformers 5.6.0 casts the attention sinks of a model without checking whether it has any. With any flash
    attention, every model without sinks (all but gpt-oss) stops in its first layer with `'NoneType' object has no
    attribute 'to'`. Seen in eight runs on a card. LLaMA-Factory 0.9.5 allows no newer release, so it is what a fresh
    installation gets.

    Use sdpa, which needs no more memory where rows are not padded, or another release of transformers. If the version
    is only assumed, the finding is a warning; set it with `--with transformers==…` or `--stack FILE`.
    """
    if not flash_stops(run) or not uses_flash_library(run.kernels.attn_implementation):
        return
    version = run.origins["flash_needs_sinks"]
    severity = Severity.WARNING if version.kind == "assumed" else None
    backend = as_written(run, "attn_implementation") or run.kernels.attn_implementation
    message = f"{backend} under {version.why} stops in the first layer: 'NoneType' object has no attribute 'to'"
    yield Hit(field="attn_implementation", message=message, change=changes.plain_attention(run), severity=severity)


@rule(
    id="packing-leaks-across-samples",
    severity=Severity.WARNING,
    bad="sequence_len: 4096\nsample_packing: true\n",
    good="sequence_len: 4096\nsample_packing: true\nattn_implementation: flash_attention_2\n",
)
def packing_leaks_across_samples(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Packed samples attend to each other.

    Packing puts several samples into one row. A backend that knows where samples begin (flash_attention_2 and 3, flex,
    xformers, sage) separates them. So do `sdpa` and `eager` when set explicitly: the trainer then drops the attention
    mask, and the boundaries come from the position ids. If no backend is set, the model still runs with sdpa, but with
    the plain mask: every sample attends to the ones before it in its row.

    Nothing fails, but the model learns from unrelated context. Set a backend; this changes what is trained.
    """
    if not run.shapes.sample_packing or run.shapes.samples_apart:
        return
    field = "attn_implementation"
    backend = as_written(run, field) or f"no {run.keys[field]}"
    packing = run.keys["sample_packing"]
    yield Hit(
        field=field,
        message=f"{packing} with {backend} does not separate samples: each attends to the ones before it",
        change=changes.separate_samples(run),
    )


_HOPPER = (9, 0)


@rule(
    id="packing-sdpa-bf16",
    severity=Severity.WARNING,
    bad="sample_packing: true\nattn_implementation: sdpa\nbf16: true\n",
    good="sample_packing: true\nattn_implementation: flash_attention_2\nbf16: true\n",
    options="--gpu a100-80gb",
    needs={"gpu"},
)
def packing_sdpa_bf16(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Packed rows with sdpa in bf16 on a card older than Hopper: the loss may be 0.0.

    Before Hopper (compute capability 9.0) torch's sdpa is not tested in bf16 with the masks that packed rows need, and
    the trainer warns that the loss can be 0.0: the run continues and learns nothing. Hopper and newer cards are
    not affected.

    Use flash_attention_2 on Ampere and Ada cards, or watch the first losses closely.
    """
    capability = run.target.gpu.capability if run.target.gpu else None
    if capability is None or capability >= _HOPPER:
        return
    named_sdpa = run.kernels.attn_implementation == "sdpa" and run.origins["attn_implementation"].kind != "default"
    if not (run.shapes.sample_packing and named_sdpa and run.precision.compute == "bf16"):
        return
    if run.model_type in run.kernels.fused_layers:  # a trainer's own layers, whose kernel needs no mask
        return
    yield Hit(
        field="attn_implementation",
        message=(
            f"{run.keys['sample_packing']} under sdpa in bf16 on sm_{capability[0]}{capability[1]}: torch does not "
            "test this below sm_90, and the loss may be 0.0"
        ),
        change=changes.flash_attention(run),
    )
