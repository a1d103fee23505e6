"""What the present card already holds besides a live run, and who holds it; counters alone are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vramwise.facts.context import CONTEXT_BYTES
from vramwise.units import MIB, gib

# Less than this is not worth a limit of its own: libraries' workspaces, and contexts of other sizes.
_MATTERS = 512 * MIB


def room_for(held: Iterable[Any]) -> tuple[int | None, str]:
    """Return what the allocator may reserve for a run of these objects, with a note; (None, "") on an empty card.

    `held`: models and optimizers that belong to the run.
    """
    import torch

    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return None, ""
    device = torch.cuda.current_device()
    free, total = torch.cuda.mem_get_info(device)
    reserved, allocated = torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device)
    beside = max(0, allocated - _bytes_of(held))
    others = max(0, total - free - reserved - CONTEXT_BYTES)
    if beside + others < _MATTERS:
        return None, ""
    said = [f"{gib(beside)} of other tensors of this process"] if beside >= _MATTERS else []
    said += [f"{gib(others)} of other processes"] if others >= _MATTERS else []
    return free + reserved - beside, f"the card already holds {' and '.join(said) or gib(beside + others)}"


def _bytes_of(held: Iterable[Any]) -> int:
    """Return the memory on the card of models' parameters and buffers, and of optimizers' states."""
    storages = {}
    for one in held:
        tensors = [*one.parameters(), *one.buffers()] if hasattr(one, "named_parameters") else []
        states = getattr(one, "state", None)
        for state in states.values() if isinstance(states, dict) else ():
            tensors += [value for value in state.values() if hasattr(value, "untyped_storage")]
        for tensor in tensors:
            if tensor.device.type == "cuda":
                storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return sum(storages.values())
