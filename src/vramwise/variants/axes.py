"""The space of a search: what may change about a run, axis by axis, and which words of --allow open which axes.

An axis offers every alternative to the run's current value. Its choices depend on the run's settings and on the axes
before it, never on those after it, and no choice makes values reachable that were not reachable before. A search that
takes the axes in this order therefore sees the same space, or a part of it, from each of its answers: searching again
from an answer gives the same answer.

Axes with the same name form one axis, which is wider if more is allowed: `opened` joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from vramwise.types import Change, RunSpec
from vramwise.variants.changes import activations, batches, dtypes, kernels, methods, spread, weights
from vramwise.variants.changes.base import Builder, Kind

Choices = Callable[[RunSpec], Sequence[Change]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One thing that a search varies. `allow`: the word that opens it; "" if every search may vary it."""

    name: str
    allow: str = ""
    choices: Choices
    kinds: tuple[Kind, ...] = ()  # the kinds of change that it offers, for tables


ALLOW: Mapping[str, str] = {
    "lora": "train LoRA adapters instead of all weights",
    "qlora": "load the base in 4 bits and train LoRA adapters",
    "8bit-optimizer": "keep optimizer states in 8 bits",
    "shorter-sequences": "halve sequence_len, repeatedly if needed: long samples are dropped or cut",
    "lower-rank": "halve the LoRA rank, repeatedly if needed, with alpha in proportion",
    "bf16-weights": "keep trained weights, their gradients and optimizer states in bf16, not fp32",
    "narrower-targets": "train LoRA adapters on attention alone",
    "no-evaluation": "do not evaluate during training",
    "compile": "compile the model with torch.compile, if rows have one width",
    "fp8": "multiply matrices in fp8 with torch.compile, on supported cards",
    "packing": "pack several samples into each row: each step sees more samples",
    "fsdp": "shard weights, gradients and optimizer states over --gpus N with FSDP2",
    "zero": "shard optimizer states, gradients or weights over --gpus N with DeepSpeed ZeRO",
}


def _all(build: Callable[[RunSpec], Iterator[Change]]) -> Choices:
    return lambda run: tuple(build(run))


def _one(build: Builder) -> Choices:
    return lambda run: tuple(found for found in (build(run),) if found is not None)


AXES: tuple[Axis, ...] = (
    Axis(name="method", allow="lora", choices=_all(methods.adapters), kinds=(methods.LORA,)),
    Axis(name="method", allow="qlora", choices=_all(methods.quantised_bases), kinds=(methods.QLORA,)),
    Axis(name="sharding", allow="fsdp", choices=_all(spread.fsdp_shards), kinds=(spread.FSDP,)),
    Axis(name="sharding", allow="zero", choices=_all(spread.zero_shards), kinds=(spread.ZERO,)),
    Axis(name="length", allow="shorter-sequences", choices=_all(methods.shorter_rows), kinds=(methods.SHORTER,)),
    Axis(name="rank", allow="lower-rank", choices=_all(methods.lower_ranks), kinds=(methods.LOWER_RANK,)),
    Axis(name="targets", allow="narrower-targets", choices=_all(methods.narrower_targets), kinds=(methods.NARROWER,)),
    Axis(name="packing", allow="packing", choices=_all(methods.packed_rows), kinds=(methods.PACK,)),
    Axis(name="precision", allow="fp8", choices=_all(methods.fp8_products), kinds=(methods.FP8,)),
    Axis(name="weights", choices=_one(dtypes.bf16_base), kinds=(dtypes.BF16_BASE,)),
    Axis(name="weights", allow="bf16-weights", choices=_all(dtypes.bf16_weights), kinds=(dtypes.BF16_WEIGHTS,)),
    Axis(name="experts", choices=_one(weights.quantize_experts), kinds=(weights.EXPERTS,)),
    Axis(
        name="optimizer", allow="8bit-optimizer", choices=_all(weights.eight_bit_optimizers), kinds=(weights.EIGHT_BIT,)
    ),
    Axis(
        name="optimizer",
        choices=_all(weights.same_optimizers),
        kinds=(weights.FUSED_STEP, weights.LOOPED_STEP, weights.PAGED, weights.UNPAGED),
    ),
    Axis(name="batches", choices=_all(batches.micro_batches), kinds=(batches.SMALLER, batches.LARGER)),
    Axis(name="evaluation", allow="no-evaluation", choices=_one(batches.no_evaluation), kinds=(batches.NO_EVALUATION,)),
    Axis(name="eval-batch", choices=_one(batches.equal_eval_batch), kinds=(batches.EVAL_BATCH,)),
    Axis(
        name="checkpointing",
        choices=_all(activations.checkpointing_states),
        kinds=(activations.CHECKPOINT, activations.KEEP, activations.STREAM, activations.HIDDEN_STATES),
    ),
    Axis(name="attention", choices=_all(kernels.attentions), kinds=(kernels.FUSED_ATTENTION, kernels.FLASH)),
    Axis(name="loss", choices=_all(kernels.losses), kinds=(kernels.FUSE_LOSS, kernels.CHUNK_LOSS, kernels.PLAIN_LOSS)),
    Axis(name="liger", choices=_all(kernels.liger_parts), kinds=(kernels.LIGER_ON, kernels.LIGER_OFF)),
    Axis(
        name="lora-kernels",
        choices=_all(kernels.lora_kernels),
        kinds=(kernels.LORA_KERNELS_ON, kernels.LORA_KERNELS_OFF),
    ),
    Axis(name="padding", choices=_all(activations.paddings), kinds=(activations.PAD, activations.UNPAD)),
    Axis(name="compile", allow="compile", choices=_one(kernels.compiled), kinds=(kernels.COMPILE,)),
    Axis(name="allocator", choices=_one(kernels.expandable_segments), kinds=(kernels.EXPANDABLE_SEGMENTS,)),
)


def opened(allow: Collection[str] = ()) -> tuple[Axis, ...]:
    """Return the default axes and those that the words open, joined by name, in their order."""
    wanted = [axis for axis in AXES if not axis.allow or axis.allow in allow]
    names = dict.fromkeys(axis.name for axis in wanted)
    return tuple(_joined(name, [axis for axis in wanted if axis.name == name]) for name in names)


def _joined(name: str, axes: Sequence[Axis]) -> Axis:
    if len(axes) == 1:
        return axes[0]
    kinds = tuple(chain.from_iterable(axis.kinds for axis in axes))
    return Axis(name=name, choices=lambda run: _together(axes, run), kinds=kinds)


def _together(axes: Sequence[Axis], run: RunSpec) -> Sequence[Change]:
    return tuple(change for axis in axes for change in axis.choices(run))
