"""Pause the garbage collector during work that creates many objects but no reference cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the garbage collector inside the block, and avoid a full pass when it is enabled again.

    Objects created in the block count as old afterwards, so the next full collection is the first to look at them.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if not gc.get_freeze_count():  # otherwise the program has permanently frozen objects itself
                gc.freeze()
                gc.unfreeze()
            gc.enable()
