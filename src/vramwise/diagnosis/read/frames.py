"""What a block of memory is for, and which part of a step made it, from the Python stack that allocated it.

Matches names that torch, transformers, PEFT and bitsandbytes use; an unknown stack is "other". The innermost call that
matches decides: a forward pass within an optimizer's closure makes activations, and so does one that checkpointing
recomputes within a backward pass.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from vramwise.recordings.recording import Call, Recording, calls_of, place_of
from vramwise.timeline import Tag

Part = Literal["forward", "backward", "optimizer", ""]

# Category, parts of file names, function names; any match is enough. Within one call, earlier rows win.
_CATEGORIES: tuple[tuple[str, tuple[str, ...], frozenset[str]], ...] = (
    (
        "optimizer",
        ("torch/optim/", "bitsandbytes/optim/", "torchao/optim"),
        frozenset(("_init_group", "init_state", "initialize_optimizer_states")),
    ),
    (
        "logits",
        ("loss_utils", "/loss/"),
        frozenset(("cross_entropy", "ForCausalLMLoss", "fixed_cross_entropy", "log_softmax")),
    ),
    (
        "weights",
        ("core_model_loading", "safetensors/"),
        frozenset(("from_pretrained", "_load_pretrained_model", "reset_parameters")),
    ),
    ("gradients", (), frozenset(("backward", "_engine_run_backward"))),
    ("activations", (), frozenset(("forward", "_call_impl"))),
)
# Files that suggest a category if no call matches.
_HINTS = (
    ("gradients", ("torch/autograd/",)),
    ("activations", ("modeling_", "torch/nn/functional", "peft/tuners", "liger_kernel")),
)
_BUILDING = frozenset(("__init__", "_apply", "convert", "to", "cuda"))
_STEPPING = frozenset(("forward", "training_step", "compute_loss"))
_RECOMPUTING = frozenset(("unpack_hook", "recompute_fn"))
_BY_AUTOGRAD = "backward pass (autograd's threads have no Python stack)"


# In a snapshot of a predicted run, the innermost frame is a label with its category as "file", the outer one the phase.
_PREDICTED = re.compile(r"[a-z][a-z ]{0,39}")
_PREDICTED_PARTS: dict[str, Part] = {
    "forward": "forward",
    "loss": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
}


class Origin(NamedTuple):
    """Where an allocation comes from."""

    category: str  # weights, gradients, optimizer, logits, activations or other
    place: str
    part: Part  # of a training step; "": the stack does not show one


class Origins:
    """Look up the origins of a recording's allocations."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._known: dict[int, Origin] = {}  # by identity: torch writes a stack once and reuses it
        self.recorded = any(entry.get("frames") for entry in recording.entries)

    def of(self, event: int) -> Origin:
        """Return the origin of an event."""
        return self.of_stack(self._recording.stack(event))

    def of_stack(self, stack: Any) -> Origin:
        """Return the origin of a stack. If stacks were recorded, one without Python calls is autograd's."""
        found = self._known.get(id(stack))
        if found is None:
            calls = calls_of(stack)
            if predicted := _predicted(calls):
                found = predicted
            elif calls or not self.recorded:
                found = Origin(_category(calls), place_of(calls), _part(calls))
            else:
                found = Origin("gradients", _BY_AUTOGRAD, "backward")
            self._known[id(stack)] = found
        return found

    def tag(self, stack: Any) -> Tag:
        """Return the origin as a timeline tag."""
        origin = self.of_stack(stack)
        return Tag(origin.category, origin.place)


def _predicted(calls: list[Call]) -> Origin | None:
    """Return the origin from vramwise's own labels in a predicted snapshot; None for a recorded stack."""
    if len(calls) != 2 or calls[1].file != "step" or not _PREDICTED.fullmatch(calls[0].file):
        return None
    return Origin(calls[0].file, calls[0].name, _PREDICTED_PARTS.get(calls[1].name, ""))


def _category(calls: list[Call]) -> str:
    named = next(filter(None, map(_named, calls)), "")
    if named in ("", "activations") and _is_building(calls):
        return "weights"
    return named or next(
        (category for category, files in _HINTS for call in calls if any(part in call.file for part in files)), "other"
    )


def _named(call: Call) -> str:
    """Return the category that one call matches, or ""."""
    for category, files, names in _CATEGORIES:
        if call.name in names or any(part in call.file for part in files):
            return category
    return ""


def _is_building(calls: list[Call]) -> bool:
    """Whether a constructor or a module move made it, outside a forward pass."""
    names = {call.name for call in calls}
    return bool(names & _BUILDING) and not names & _STEPPING


def _part(calls: list[Call]) -> Part:
    """Return the part of the step. A recomputed forward pass counts as backward."""
    names = {call.name for call in calls}
    if names & _RECOMPUTING or "backward" in names or "_engine_run_backward" in names:
        return "backward"
    if _category(calls) == "optimizer":
        return "optimizer"
    return "forward" if names & _STEPPING else ""
