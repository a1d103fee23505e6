"""Names the tensors of a pass and detects when each of them is freed."""

from __future__ import annotations

import weakref
from collections import Counter

import torch

from vramwise.tracing.described import storage_of


class Naming:
    """Names tensors in the order in which they appear, and calls `_freed` when one is freed."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._storages: dict[int, str] = {}
        self._users: Counter[int] = Counter()  # number of tensors in each storage
        self._watched: dict[str, weakref.ref[torch.Tensor]] = {}
        self._kept: list[torch.Tensor] = []  # parameters and buffers, kept alive so that their ids are not reused
        self._kept_names: set[str] = set()
        self.count = 0

    def _freed(self, name: str) -> None:
        """Called when the tensor of this name is freed."""
        raise NotImplementedError

    def keep(self, tensor: torch.Tensor, name: str) -> None:
        """Register a tensor that exists before and after the pass, such as a parameter or buffer."""
        self._kept.append(tensor)
        self._kept_names.add(name)
        self._users[storage_of(tensor)] += 1
        self._names[id(tensor)] = name
        self._storages[storage_of(tensor)] = name

    def keeps(self, name: str) -> bool:
        """Return whether a parameter or buffer has this name."""
        return name in self._kept_names

    def name(self, tensor: torch.Tensor) -> str:
        """Return the name of a tensor. A tensor not seen before gets a new name."""
        found = self._names.get(id(tensor))
        if found is not None:
            return found
        return self._new(tensor)

    def _new(self, tensor: torch.Tensor) -> str:
        name = f"t{self.count}"
        self.count += 1
        key, storage = id(tensor), storage_of(tensor)
        self._names[key] = name
        self._users[storage] += 1

        def gone(_: object) -> None:
            if self._names.get(key) == name:
                del self._names[key]
            self._users[storage] -= 1
            if not self._users[storage]:  # another storage may reuse this id
                del self._users[storage]
                self._storages.pop(storage, None)
            self._watched.pop(name, None)
            self._freed(name)

        self._watched[name] = weakref.ref(tensor, gone)
        return name
