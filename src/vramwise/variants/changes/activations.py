"""Changes to what forward keeps for backward, and to batch shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import kind

_SHORTEST = 1024

CHECKPOINT = kind("checkpoint-activations")
KEEP = kind("keep-activations")
STREAM = kind("offload-activations")
HIDDEN_STATES = kind("offload-layer-inputs")
PAD = kind("pad-rows")
UNPAD = kind("trim-rows")
_STATES = {
    (False, "off"): KEEP,
    (True, "off"): CHECKPOINT,
    (True, "stream"): STREAM,
    (True, "hidden_states"): HIDDEN_STATES,
}


def checkpoint_activations(run: RunSpec) -> Change | None:
    """Recompute activations instead of keeping them; None if they are recomputed or offloaded already."""
    if run.savings.recompute or run.savings.activation_offloading != "off":
        return None
    return turn_checkpointing_on(run)


def turn_checkpointing_on(run: RunSpec) -> Change | None:
    """Turn gradient checkpointing on, whatever else is set; MPT does not support it."""
    if run.savings.gradient_checkpointing or not _can_checkpoint(run):
        return None
    return CHECKPOINT.to(gradient_checkpointing=True)


def checkpointing_states(run: RunSpec) -> Iterator[Change]:
    """Yield every other combination of recomputing and offloading."""
    if not _can_checkpoint(run) or (run.savings.recompute and not run.savings.gradient_checkpointing):
        return  # the sharding recomputes in any case
    for (checkpointing, offloading), state in _STATES.items():
        fields: dict[str, Any] = {}
        if offloading != run.savings.activation_offloading:
            fields["activation_offloading"] = offloading
        if checkpointing != run.savings.gradient_checkpointing:
            fields["gradient_checkpointing"] = checkpointing
        if fields and (offloading == "off" or _can_offload(run)):
            yield state.to(**fields)


def _can_checkpoint(run: RunSpec) -> bool:
    return "mpt" not in (run.base_model or "").lower()


def _can_offload(run: RunSpec) -> bool:
    """Return whether offloading supports the run: supervised, LoRA or full, not sharded or compiled."""
    plain = run.objective.kind == "tokens" and run.objective.rl is None and not run.kernels.torch_compile
    return (
        plain
        and run.sharding.kind in ("none", "ddp")
        and run.adapter.kind in (None, "lora", "qlora")
        and not run.adapter.unfrozen
    )


def pad_rows(run: RunSpec) -> Change | None:
    """Pad all batches to the same width."""
    if run.shapes.constant_shapes or run.objective.rl or not run.shapes.can_pad:
        return None
    return PAD.to(f"Pad every batch to {run.shapes.sequence_len} tokens", pad_to_sequence_len=True)


def paddings(run: RunSpec) -> Iterator[Change]:
    """Yield the other way to pad rows; compiled models and packed rows keep their constant shape."""
    one_shape = run.shapes.sample_packing or run.kernels.torch_compile or run.kernels.attn_implementation == "sage"
    if one_shape or run.objective.kind != "tokens" or run.objective.rl or not run.shapes.can_pad:
        return
    if run.shapes.pad_to_sequence_len:
        yield UNPAD.to(pad_to_sequence_len=False)
    elif (found := pad_rows(run)) is not None:
        yield found


def shorten_rows(run: RunSpec) -> Change | None:
    """Halve the row length, as a last resort."""
    if run.shapes.sequence_len < _SHORTEST:
        return None
    half = run.shapes.sequence_len // 2
    title = f"Rows of {half} tokens instead of {run.shapes.sequence_len} (drops or cuts long samples)"
    return kind("shorten-rows").to(title, sequence_len=half)


def reentrant_checkpointing(run: RunSpec) -> Change | None:
    """Use reentrant checkpointing, which recomputes as in forward and does not compare the results."""
    if run.savings.checkpointing_reentrant:
        return None
    return kind("reentrant-checkpointing").to(checkpointing_reentrant=True)


def nonreentrant_checkpointing(run: RunSpec) -> Change | None:
    """Use non-reentrant checkpointing, which supports partly frozen models and RL trainers."""
    if not run.savings.checkpointing_reentrant:
        return None
    return kind("nonreentrant-checkpointing").to(checkpointing_reentrant=False)


def legacy_offloading(run: RunSpec) -> Change | None:
    """Use the older activation offloading, which does not track tensors."""
    return kind("legacy-offloading").to(activation_offloading="legacy")
