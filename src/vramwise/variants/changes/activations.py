"""What forward keeps for backward, and the shapes of batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import Kind, change

_SHORTEST = 1024

_RECOMPUTED = "backward recomputes what forward computed, from the same inputs; about a quarter slower"
_OFFLOADED = "what is kept for backward waits in host memory and comes back bit for bit"
CHECKPOINT = Kind("checkpoint-activations", "same", "Recompute activations: gradient checkpointing", _RECOMPUTED)
KEEP = Kind(
    "keep-activations",
    "same",
    "Keep activations: no gradient checkpointing",
    "what forward computed is kept instead of computed again from the same inputs",
)
STREAM = Kind("offload-activations", "same", "Checkpoint, and offload activations to host memory", _OFFLOADED)
HIDDEN_STATES = Kind("offload-layer-inputs", "same", "Checkpoint, and offload the layers' inputs alone", _OFFLOADED)
PAD = Kind(
    "pad-rows",
    "same",
    "Pad every batch to the full length",
    "pad tokens count neither in attention nor in the loss",
)
UNPAD = Kind(
    "trim-rows",
    "same",
    "Pad each batch to its own longest row alone",
    "pad tokens count neither in attention nor in the loss; without them there is less to compute",
)
_STATES = {
    (False, "off"): KEEP,
    (True, "off"): CHECKPOINT,
    (True, "stream"): STREAM,
    (True, "hidden_states"): HIDDEN_STATES,
}


def checkpoint_activations(run: RunSpec) -> Change | None:
    """Recompute instead of keeping."""
    if run.savings.recompute or run.savings.activation_offloading != "off":
        return None
    return turn_checkpointing_on(run)


def turn_checkpointing_on(run: RunSpec) -> Change | None:
    """Ask for it, whatever else is on; MPT has none."""
    if run.savings.gradient_checkpointing or not _can_checkpoint(run):
        return None
    return CHECKPOINT.to(gradient_checkpointing=True)


def checkpointing_states(run: RunSpec) -> Iterator[Change]:
    """Recomputing and offloading: every combination but the present one."""
    if not _can_checkpoint(run) or (run.savings.recompute and not run.savings.gradient_checkpointing):
        return  # the sharding itself recomputes, whatever is asked for here
    for (checkpointing, offloading), kind in _STATES.items():
        fields: dict[str, Any] = {}
        if offloading != run.savings.activation_offloading:
            fields["activation_offloading"] = offloading
        if checkpointing != run.savings.gradient_checkpointing:
            fields["gradient_checkpointing"] = checkpointing
        if fields and (offloading == "off" or _can_offload(run)):
            yield kind.to(**fields)


def _can_checkpoint(run: RunSpec) -> bool:
    return "mpt" not in (run.base_model or "").lower()


def _can_offload(run: RunSpec) -> bool:
    """Offloaders know plain supervised steps, of whole models or LoRA, whose layers are not spread or compiled."""
    plain = run.objective.kind == "tokens" and run.objective.rl is None and not run.kernels.torch_compile
    return (
        plain
        and run.sharding.kind in ("none", "ddp")
        and run.adapter.kind in (None, "lora", "qlora")
        and not run.adapter.unfrozen
    )


def pad_rows(run: RunSpec) -> Change | None:
    """Constant shapes."""
    if run.shapes.constant_shapes or run.objective.rl or not run.shapes.can_pad:
        return None
    return PAD.to(f"Pad every batch to {run.shapes.sequence_len} tokens", pad_to_sequence_len=True)


def paddings(run: RunSpec) -> Iterator[Change]:
    """The other way to pad rows of various lengths; compiled models and packed rows keep their one shape."""
    one_shape = run.shapes.sample_packing or run.kernels.torch_compile or run.kernels.attn_implementation == "sage"
    if one_shape or run.objective.kind != "tokens" or run.objective.rl or not run.shapes.can_pad:
        return
    if run.shapes.pad_to_sequence_len:
        yield UNPAD.to(pad_to_sequence_len=False)
    elif (found := pad_rows(run)) is not None:
        yield found


def shorten_rows(run: RunSpec) -> Change | None:
    """The last resort: shorter rows."""
    if run.shapes.sequence_len < _SHORTEST:
        return None
    half = run.shapes.sequence_len // 2
    return change(
        "shorten-rows",
        "changes",
        f"Rows of {half} tokens instead of {run.shapes.sequence_len} (drops or cuts long samples)",
        "samples above the new length are dropped or cut",
        sequence_len=half,
    )


def reentrant_checkpointing(run: RunSpec) -> Change | None:
    """Reentrant checkpointing recomputes as forward did, and compares nothing."""
    return None if run.savings.checkpointing_reentrant else _reentrant(True, "Use reentrant checkpointing")


def nonreentrant_checkpointing(run: RunSpec) -> Change | None:
    """The form that trains partly frozen models and works with RL's trainers."""
    return _reentrant(False, "Use non-reentrant checkpointing") if run.savings.checkpointing_reentrant else None


def _reentrant(value: bool, title: str) -> Change:
    name = "reentrant-checkpointing" if value else "nonreentrant-checkpointing"
    why = "the same activations, recomputed from the same inputs by another path of autograd"
    return change(name, "same", title, why, checkpointing_reentrant=value)


def legacy_offloading(run: RunSpec) -> Change | None:
    """The older offloading has no tracker."""
    return change(
        "legacy-offloading",
        "changes",
        "Offload activations the older way",
        "another implementation of the same offloading",
        activation_offloading="legacy",
    )
