"""Work that makes a hundred thousand objects and no cycles: Python's garbage collector has nothing to find in it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector, and without its going through everything as soon as it is back.

    What was made in between counts as old from then on, like all else: it is looked at in the next full collection.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if not gc.get_freeze_count():  # else the program has frozen objects of its own, for good
                gc.freeze()
                gc.unfreeze()
            gc.enable()
