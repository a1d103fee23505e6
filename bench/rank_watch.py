"""Peaks by phase: from the card's allocator, or on the CPU from what lives after each op."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MIB = 1024**2
_PLACES = ("/deepspeed/", "/fsdp/", "torch/optim", "bitsandbytes")


class CardWatch:
    """The allocator's own peaks."""

    device = "cuda"

    def __init__(self) -> None:
        self.peaks: dict[str, float] = {}
        self.steps: dict[str, float] = {}
        self._name = ""

    def __enter__(self) -> CardWatch:
        torch.cuda.init()
        return self

    def __exit__(self, *_: object) -> None:
        self.phase("end")

    def phase(self, name: str, step: int = 0) -> None:
        """The run enters a phase: what the one before took is noted."""
        if self._name:
            torch.cuda.synchronize()
            most = torch.cuda.max_memory_allocated() / MIB
            self.peaks[self._name] = max(self.peaks.get(self._name, 0.0), most)
            key = f"{self._name} {self._step}"
            self.steps[key] = max(self.steps.get(key, 0.0), most)
        torch.cuda.reset_peak_memory_stats()
        self._reserved = max(getattr(self, "_reserved", 0.0), torch.cuda.memory_reserved() / MIB)
        self._name, self._step = name, step

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Batches count on a card."""
        yield

    def report(self) -> dict[str, Any]:
        """Peaks in MiB. Reserved memory only shrinks when the cache is emptied: read at every phase's end."""
        return {
            "allocated": {name: round(peak, 2) for name, peak in self.peaks.items()},
            "by_step": {name: round(peak, 2) for name, peak in self.steps.items()},
            "reserved": round(self._reserved, 2),
        }


class HostWatch(TorchDispatchMode):
    """Adds up living storages after each op, optimizer states among them; keeps the most of each phase."""

    device = "cpu"

    def __init__(self, parts: bool) -> None:
        super().__init__()
        self.parts = parts
        self.now = "load"
        self.counting = True
        self.known: dict[int, tuple[StorageWeakRef, str]] = {}
        self.most: dict[str, tuple[int, dict[str, int]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.counting:
            for leaf in tree_leaves((out,)):
                if isinstance(leaf, torch.Tensor) and not hasattr(leaf, "_local_tensor") and leaf.device.type == "cpu":
                    self._note(leaf)
            self.count()
        return out

    def phase(self, name: str, step: int = 0) -> None:
        """The run enters a phase."""
        self.count()
        self.now = f"{name} {step}" if step else name
        self.count()

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """What is made here is not counted."""
        self.counting = False
        yield
        self.counting = True

    def _note(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        known = self.known.get(storage._cdata)
        if known is None or known[0].expired():
            self.known[storage._cdata] = (StorageWeakRef(storage), self._maker())

    def _maker(self) -> str:
        """The innermost function of a sharding library or an optimizer on the stack, else the phase."""
        frame: Any = sys._getframe(3)
        while frame is not None:
            name = frame.f_code.co_filename
            if any(place in name for place in _PLACES) and frame.f_code.co_name not in ("wrapped_fn", "forward"):
                return str(frame.f_code.co_name)
            frame = frame.f_back
        return self.now.split()[0]

    def count(self) -> None:
        """Storages are resized behind the dispatcher's back, so their sizes are asked for anew."""
        found: dict[str, int] = {}
        for key, (weak, made_by) in list(self.known.items()):
            storage = None if weak.expired() else torch.UntypedStorage._new_with_weak_ptr(weak.cdata)
            if storage is None:
                del self.known[key]
            else:
                found[made_by] = found.get(made_by, 0) + storage.nbytes()
        total = sum(found.values())
        if total > self.most.get(self.now, (0, {}))[0]:
            self.most[self.now] = (total, found)

    def report(self) -> dict[str, Any]:
        """Peaks in MiB: the most of all steps, each by itself, and what they are made of."""
        by_step = {name: round(total / MIB, 3) for name, (total, _) in self.most.items()}
        most: dict[str, float] = {}
        for name, total in by_step.items():
            most[name.split()[0]] = max(most.get(name.split()[0], 0.0), total)
        made = {"allocated": most, "by_step": by_step}
        if self.parts:
            made["parts"] = {
                name: {part: round(size / MIB, 3) for part, size in sorted(found.items(), key=lambda p: -p[1])}
                for name, (_, found) in self.most.items()
            }
        return made
