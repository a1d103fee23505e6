"""What forward keeps for backward, and the shapes of batches."""

from __future__ import annotations

from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import change

_SHORTEST = 1024


def checkpoint_activations(run: RunSpec) -> Change | None:
    """Recompute instead of keeping."""
    if run.recompute or run.activation_offloading != "off":
        return None
    return turn_checkpointing_on(run)


def turn_checkpointing_on(run: RunSpec) -> Change | None:
    """Ask for it, whatever else is on; MPT has none."""
    if run.gradient_checkpointing or "mpt" in (run.base_model or "").lower():
        return None
    return change(
        "checkpoint-activations",
        "same",
        "Recompute activations: gradient checkpointing",
        "backward recomputes what forward computed, from the same inputs; about a quarter slower",
        gradient_checkpointing=True,
    )


def pad_rows(run: RunSpec) -> Change | None:
    """Constant shapes."""
    if run.constant_shapes or run.rl or not run.can_pad:
        return None
    return change(
        "pad-rows",
        "same",
        f"Pad every batch to {run.sequence_len} tokens",
        "pad tokens count neither in attention nor in the loss",
        pad_to_sequence_len=True,
    )


def shorten_rows(run: RunSpec) -> Change | None:
    """The last resort: shorter rows."""
    if run.sequence_len < _SHORTEST:
        return None
    half = run.sequence_len // 2
    return change(
        "shorten-rows",
        "changes",
        f"Rows of {half} tokens instead of {run.sequence_len} (drops or cuts long samples)",
        "samples above the new length are dropped or cut",
        sequence_len=half,
    )


def reentrant_checkpointing(run: RunSpec) -> Change | None:
    """Reentrant checkpointing recomputes as forward did, and compares nothing."""
    return None if run.checkpointing_reentrant else _reentrant(True, "Use reentrant checkpointing")


def nonreentrant_checkpointing(run: RunSpec) -> Change | None:
    """The form that trains partly frozen models and works with RL's trainers."""
    return _reentrant(False, "Use non-reentrant checkpointing") if run.checkpointing_reentrant else None


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
